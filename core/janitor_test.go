package core_test

import (
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// A relay deletes published rows after Retention.Keep and unused keys after a day, in chunks, also
// after the database was away. The observer hears what was deleted. Dead rows stay.
func TestJanitor(t *testing.T) {
	for name, disabled := range map[string]bool{"runs": false, "disabled": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				cleaned := map[string]int{}
				w := newWorld(t, core.Config{
					DisableJanitor: disabled,
					Retention:      core.Retention{Keep: time.Hour, CleanupInterval: time.Minute, CleanupBatch: 2},
					Observer: &core.Observer{Cleaned: func(table string, rows int) {
						mu.Lock()
						defer mu.Unlock()
						cleaned[table] += rows
						if rows > 2 {
							t.Errorf("%d rows of %s in one chunk", rows, table)
						}
					}},
				})
				away := errors.New("away")
				for _, m := range []outboxtest.Method{outboxtest.MethodCleanup, outboxtest.MethodCollectKeys} {
					w.faulty.Fail(outboxtest.Fault{Method: m, Err: away, Times: 3})
				}
				w.run()
				w.publish(core.Event{Type: "a", Key: "1"}, core.Event{Type: "a", Key: "2"},
					core.Event{Type: "a", Key: "3"}, core.Event{Type: "a"}, core.Event{Type: "a"})
				w.pub.FailNext(1, core.Permanent(errors.New("no")))
				w.publish(core.Event{Type: "a", Key: "dead"})
				time.Sleep(50 * time.Minute)
				equal(t, len(w.repo.Rows()), 6, "rows within the retention")
				time.Sleep(30 * time.Hour)
				rows, keys, want := 1, 1, map[string]int{"event": 5, "key": 3}
				if disabled {
					rows, keys, want = 6, 4, map[string]int{}
				}
				if got := w.repo.Rows(); len(got) != rows || w.repo.Keys() != keys {
					t.Errorf("%d rows and %d keys are left, want %d and %d", len(got), w.repo.Keys(), rows, keys)
				}
				mu.Lock()
				if !maps.Equal(cleaned, want) {
					t.Errorf("heard of %v, want %v", cleaned, want)
				}
				mu.Unlock()
				_ = w.stop()
			})
		})
	}
}
