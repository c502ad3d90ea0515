package inbox_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// impatient gives an event up after three failures, but not before MinAge.
func impatient(c *coreinbox.Config) {
	c.MaxAttempts, c.MinAge = 3, 0
	c.RetryPause, c.MaxRetryPause = 5*time.Millisecond, 50*time.Millisecond
}

// redeliverAll delivers events at once, each until it is acknowledged. wait returns when all are
// acknowledged.
func (w *inboxWorld) redeliverAll(events int, dlt *deadLetters, h message.HandlerFunc,
	outside ...message.HandlerMiddleware,
) (wait func()) {
	w.t.Helper()
	h = dlt.poison(w.t)(w.in.Middleware(h))
	for _, m := range outside {
		h = m(h)
	}
	var wg sync.WaitGroup
	for n := range events {
		routed := w.routed(fmt.Sprint(n))
		wg.Go(func() {
			for w.t.Context().Err() == nil {
				msg := routed.Copy()
				msg.SetContext(routed.Context())
				if _, err := h(msg); err == nil {
					return
				}
			}
		})
	}
	return wg.Wait
}

// wantAll requires one effect of each event, and that no event is dead.
func (w *inboxWorld) wantAll(events int, dlt *deadLetters) {
	w.t.Helper()
	want := map[string]int{}
	for n := range events {
		want[fmt.Sprint(n)+" handled"] = 1
	}
	w.wantEffects(want)
	if got := dlt.ids(); got != "" {
		w.t.Errorf("in the poison queue: %s", got)
	}
	w.hears("dead", 0)
}

func (w *inboxWorld) heardSoFar(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heard[name]
}

// No event becomes dead because a service refuses connections, since that is not the fault of the
// events.
func TestInboxRefusedConnection(t *testing.T) {
	t.Parallel()
	const address = "127.0.0.1:1" // nobody listens there, and no other test is given that port
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		const events = 10
		var dlt deadLetters
		up := make(chan struct{})
		wait := w.redeliverAll(events, &dlt, func(msg *message.Message) ([]*message.Message, error) {
			select {
			case <-up:
				return w.handler(msg)
			default:
			}
			if err := w.apply(msg, "half"); err != nil {
				return nil, err
			}
			var d net.Dialer
			_, err := d.DialContext(msg.Context(), "tcp", address)
			return nil, fmt.Errorf("charge the card: %w", err)
		})
		fixture.Eventually(t.Context(), t, "enough refusals to park every event",
			func() bool { return w.heardSoFar("failed") > 5*events })
		close(up)
		wait()
		w.wantAll(events, &dlt)
	}, func(c *coreinbox.Config) { impatient(c); c.MinAge = -1 })
}

// lockEffects locks the table of the handler, as a migration does, and returns a function that
// unlocks it.
func lockEffects(t *testing.T, w *inboxWorld) (unlock func()) {
	t.Helper()
	conn, err := w.pool.Conn(t.Context())
	fixture.NoError(t, err)
	run := func(text string) {
		_, err := conn.ExecContext(context.WithoutCancel(t.Context()), text)
		fixture.NoError(t, err)
	}
	release := ""
	switch w.db.Dialect {
	case core.Postgres:
		run("BEGIN")
		run("LOCK TABLE effects IN ACCESS EXCLUSIVE MODE")
		release = "ROLLBACK"
	case core.MySQL:
		run("LOCK TABLES effects WRITE")
		release = "UNLOCK TABLES"
	case core.SQLite:
		run("BEGIN IMMEDIATE")
		release = "ROLLBACK"
	}
	return sync.OnceFunc(func() {
		run(release)
		fixture.NoError(t, conn.Close())
	})
}

// No event becomes dead because a table is locked for a while.
func TestInboxLockedTable(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		db.DSN = strings.Replace(db.DSN, "busy_timeout(30000)", "busy_timeout(20)", 1)
		w := newInboxWorld(t, db, inboxSQL(db.Open(t), db.Dialect), impatient)
		const events = 10
		unlock := lockEffects(t, w)
		defer unlock()
		var dlt deadLetters
		var free atomic.Bool
		whileLocked := func(h message.HandlerFunc) message.HandlerFunc {
			limited := middleware.Timeout(100 * time.Millisecond)(h)
			return func(msg *message.Message) ([]*message.Message, error) {
				if free.Load() {
					return h(msg)
				}
				return limited(msg)
			}
		}
		wait := w.redeliverAll(events, &dlt, w.handler, whileLocked)
		fixture.Eventually(t.Context(), t, "enough timeouts to park every event",
			func() bool { return w.heardSoFar("failed") > 5*events })
		free.Store(true) // a slow machine may need longer than the limit
		unlock()
		wait()
		w.wantAll(events, &dlt)
	})
}

// A database is killed while handlers work, and comes back. No event becomes dead, and each effect
// happens once.
func TestInboxDatabaseRestart(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"postgres", "mariadb"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, db := fixture.StartPrivateDatabase(t, name)
			pool := db.Open(t)
			w := newInboxWorld(t, db, inboxSQL(pool, db.Dialect), impatient)
			const events = 40
			var dlt deadLetters
			down := make(chan struct{})
			var begun atomic.Int64
			wait := w.redeliverAll(events, &dlt, func(msg *message.Message) ([]*message.Message, error) {
				out, err := w.handler(msg)
				if begun.Add(1) > 5 { // these handlers work while the database is killed
					<-down
				}
				return out, err
			})
			fixture.Eventually(t.Context(), t, "some events are processed and handlers work",
				func() bool { return w.heardSoFar("processed") > 0 && begun.Load() > 5 })
			server.Kill(t)
			close(down)
			fixture.Eventually(t.Context(), t, "failures while it is down",
				func() bool { return w.heardSoFar("failed") > 5*events })
			server.Up(t)
			wait()
			w.pool.SetMaxIdleConns(-1) // the pool may still have a connection from before the kill
			w.wantAll(events, &dlt)
		})
	}
}

// A database hangs with its connections open. It does not hold a message much longer than the
// message's deadline. This holds if a statement waits for the answer, and if ROLLBACK does.
func TestInboxDatabaseHangs(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"postgres", "mariadb"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, db := fixture.StartPrivateDatabase(t, name)
			w := newInboxWorld(t, db, inboxSQL(db.Open(t), db.Dialect), named)
			for _, event := range []string{"hangs in a statement", "hangs in the rollback"} {
				var paused atomic.Bool
				h := w.in.Middleware(func(msg *message.Message) ([]*message.Message, error) {
					server.Pause(t)
					paused.Store(true)
					if event == "hangs in the rollback" {
						<-msg.Context().Done()
						return nil, msg.Context().Err()
					}
					return w.handler(msg)
				})
				// A slow machine may need longer to come to the handler.
				for limit := time.Second; !paused.Load(); limit *= 2 {
					ended := make(chan error, 1)
					go func() {
						_, err := middleware.Timeout(limit)(h)(inboxMessage(event))
						ended <- err
					}()
					select {
					case err := <-ended:
						fixture.Check(t, err != nil, "acknowledged")
					case <-time.After(time.Minute):
						t.Fatalf("%s: a minute after its deadline, the message is still held", event)
					}
				}
				server.Resume(t)
				if _, err := w.in.Middleware(w.handler)(inboxMessage(event)); err != nil {
					t.Error(event, err)
				}
				w.wantEffects(map[string]int{event + " handled": 1})
				fixture.MustExec(t, w.pool, "DELETE FROM effects")
			}
		})
	}
}
