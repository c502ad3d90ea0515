package inbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core/inbox"
)

// failingCleanup is a Store that cannot clean up.
type failingCleanup struct {
	inbox.Store
	err error
}

func (s failingCleanup) Cleanup(context.Context, string, time.Duration, int) (int, error) {
	return 0, fmt.Errorf("sqlinbox: cleanup: %w", s.err)
}

// A cleanup beside a message has nobody who waits for it. A program that ends may close the pool
// meanwhile, which is no news. What else fails is.
func TestACleanupBesideAMessageFails(t *testing.T) {
	t.Parallel()
	for text, told := range map[string]int{"sql: database is closed": 0, "closed pool": 0, "disk full": 1} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			var cleaned error
			w := newWorld(t, func(c *inbox.Config) {
				c.Store = failingCleanup{c.Store, errors.New(text)}
				c.Logger = slog.New(slog.NewTextHandler(&log, nil))
				c.Observer = &inbox.Observer{Cleaned: func(_ int, err error) { cleaned = errors.Join(cleaned, err) }}
			})
			time.Sleep(24 * time.Hour)
			w.wants(w.in.Process(t.Context(), message("e"), w.apply), inbox.Ack, nil)
			synctest.Wait()
			if cleaned == nil {
				t.Errorf("%s: nothing was cleaned up", text)
			}
			if n := strings.Count(log.String(), "cleanup failed"); n != told {
				t.Errorf("%s: told %d times, want %d: %s", text, n, told, log.String())
			}
		})
	}
}
