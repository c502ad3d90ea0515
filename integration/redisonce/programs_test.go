package redisonce_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/inbox/redisonce"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// Two programs that use one scope hear of each other, on one server and in a cluster; other scopes
// and prefixes are apart. The inbox with a lease warns of the other, once.
func TestRedisTellsOfAnotherProgram(t *testing.T) {
	t.Parallel()
	client := fixture.RedisAt(t, fixture.StartPrivate(t, "redis").Address)
	prefix := rand.Text() + ":"
	s := newRedisStore(t, client, redisonce.Config{Prefix: prefix})
	for _, c := range []struct {
		store          *redisonce.Store
		scope, program string
		others         []string
	}{
		{s, "inbox/a", "example.com/a", nil},
		{s, "inbox/a", "example.com/a", nil},
		{s, "inbox/{b}", "example.com/b", nil},
		{newRedisStore(t, client, redisonce.Config{Prefix: "other:"}), "inbox/a", "example.com/b", nil},
		{s, "inbox/a", "example.com/b", []string{"example.com/a"}},
		{s, "inbox/a", "example.com/a", []string{"example.com/b"}},
	} {
		others, err := c.store.Register(t.Context(), c.scope, c.program)
		if err != nil || !slices.Equal(others, c.others) {
			t.Errorf("%s in %s: %v, %v, want %v", c.program, c.scope, others, err, c.others)
		}
	}

	_, err := s.Register(t.Context(), once.Scope("inbox", "billing", "h"), "example.com/mailer")
	fixture.NoError(t, err)
	var log bytes.Buffer
	a, err := inbox.NewAtLeastOnce(inbox.AtLeastOnceConfig{
		Consumer: "billing", Handler: "h", Runner: redisRunner(t, s, 0, nil),
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	fixture.NoError(t, err)
	for _, id := range []string{"1", "2"} {
		a.Process(t.Context(), inbox.Message{ID: id}, func(context.Context, inbox.Message) error { return nil })
	}
	if text := log.String(); strings.Count(text, "another program") != 1 ||
		!strings.Contains(text, "other_program=example.com/mailer") {
		t.Errorf("logged %s", text)
	}
}
