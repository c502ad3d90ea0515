package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/inbox/redisonce"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Doctor finds two programs that use one scope in Redis, whatever the prefix. A program that has not
// used it for a week is forgotten.
func TestDoctorFindsSharedPrefixesOfRedis(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		_, errs, code := outbox(t, db, "migrate", "up")
		fixture.Must(t, code == 0, "migrate: %s", errs)
		server := fixture.StartPrivate(t, "redis")
		client := fixture.RedisAt(t, server.Address)
		register := func(prefix, program string) {
			t.Helper()
			s, err := redisonce.New(client, redisonce.Config{Prefix: prefix})
			fixture.NoError(t, err)
			_, err = s.Register(t.Context(), "inbox/billing/h", program)
			fixture.NoError(t, err)
		}
		doctor := func(want string) {
			t.Helper()
			out, errs, _ := outbox(t, db, "doctor", "--redis", server.Address)
			fixture.Check(t, strings.Contains(out, want), "doctor does not say %q:\n%s%s", want, out, errs)
		}
		register("shop:", "example.com/a")
		register("mail:", "example.com/b")
		doctor("names: each name is used by one program")
		register("shop:", "example.com/b")
		doctor(`names: the keys of inbox/billing/h with prefix "shop:" in Redis are used by example.com/a and ` +
			"example.com/b")
		const programs = "shop:programs:{inbox/billing/h}"
		lastWeek := time.Now().Add(-8 * 24 * time.Hour).Unix()
		fixture.NoError(t, client.HSet(t.Context(), programs, "example.com/a", lastWeek).Err())
		doctor("names: each name is used by one program")
		server.Kill(t)
		doctor("names: could not be checked")
	})
}
