package redisonce_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/inbox/redisonce"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// The inbox with a lease warns of another program, once. The same scope under another prefix is
// another one. The suite of stores has the rest.
func TestRedisTellsOfAnotherProgram(t *testing.T) {
	t.Parallel()
	client := fixture.RedisAt(t, fixture.StartPrivate(t, "redis").Address)
	s := newRedisStore(t, client, redisonce.Config{Prefix: "shop:"})
	scope := once.Scope("inbox", "billing", "h")
	others, err := newRedisStore(t, client, redisonce.Config{Prefix: "other:"}).Register(t.Context(), scope, "a")
	fixture.Check(t, err == nil && len(others) == 0, "%v, %v", others, err)
	others, err = s.Register(t.Context(), scope, "example.com/mailer")
	fixture.Check(t, err == nil && len(others) == 0, "another prefix is told: %v, %v", others, err)
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
