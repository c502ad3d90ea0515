package httpkey_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// known is a store of which another program uses every scope.
type known struct {
	*outboxtest.OnceStore
	asked []string
}

func (k *known) Register(_ context.Context, scope, _ string) ([]string, error) {
	k.asked = append(k.asked, scope)
	return []string{"example.com/other"}, nil
}

// Another program that keeps keys of the same endpoint is told once, before its handler runs.
func TestAnotherProgramOfOneEndpoint(t *testing.T) {
	t.Parallel()
	forms(t, func(t *testing.T, tx bool) {
		var log bytes.Buffer
		var s *known
		a := newAPI(t, tx, func(c *httpkey.Config) {
			s = &known{OnceStore: c.Keys.Store.(*outboxtest.OnceStore)}
			c.Keys.Store = s
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		for _, key := range []string{"1", "2"} {
			r := requestWith(func(r *http.Request) { r.Header.Set("Idempotency-Key", key) })
			if got := a.do(r); got.Code != http.StatusCreated {
				t.Errorf("answered %d", got.Code)
			}
		}
		if len(s.asked) != 1 || s.asked[0] != "http/POST /payments" {
			t.Errorf("registered %v", s.asked)
		}
		if text := log.String(); strings.Count(text, "another program") != 1 ||
			!strings.Contains(text, "other_program=example.com/other") {
			t.Errorf("logged %s", text)
		}
	})
}
