package relay_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Two relays keep the rate of a destination together, for events of the fast path and of the table.
// Another destination does not wait, every event arrives once, and keys stay in order.
func TestRate(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		operator := fixture.NewProcess(t, db, core.Config{})
		pub := &outboxtest.Publisher{}
		var mu sync.Mutex
		var hooks []time.Time
		pub.FailFor(func(d core.Delivery) error {
			if d.Topic == "hooks" {
				mu.Lock()
				defer mu.Unlock()
				hooks = append(hooks, time.Now())
			}
			return nil
		})
		var relays [2]*fixture.Process
		var logs [2]logText
		for i := range relays {
			relays[i] = fixture.JoinProcess(t, db, pub, core.Config{
				Relay: relay.Config{
					PollInterval: 20 * time.Millisecond,
				},
				Logger: slog.New(slog.NewTextHandler(&logs[i], nil)),
			})
			relays[i].RunHot()
		}
		fixture.Await(t, "both relays are alive", func() bool {
			all, err := operator.Outbox.Relays(t.Context())
			return err == nil && len(all) == 2
		})
		for _, relay := range relays { // a relay follows a call of its own Outbox at once
			fixture.NoError(t, relay.Outbox.SetRate(t.Context(), core.RateRequest{
				Topic: "hooks", PerSecond: 40, InFlight: 4, Actor: "ann", Reason: "contract",
			}))
		}
		fixture.Await(t, "each relay keeps to its half", func() bool {
			return logs[0].has("per_second=20 ") && logs[1].has("per_second=20 ")
		})
		var want []string
		for i := range 40 {
			by := []*fixture.Process{relays[0], relays[1], operator}[i%3]
			want = append(want, by.Publish(core.Event{Type: "e", Topic: "hooks", Key: fmt.Sprint(i % 3)},
				core.Event{Type: "e", Topic: "hooks"}, core.Event{Type: "mail", Topic: "mails"})...)
		}
		mails := func() (n int) {
			for _, d := range pub.Accepted() {
				if d.Topic == "mails" {
					n++
				}
			}
			return n
		}
		fixture.Await(t, "the other destination does not wait", func() bool { return mails() == 40 })
		relays[0].AwaitDone(len(want))
		relays[0].OnceEach(want)
		inKeyOrder(t, pub.Accepted())
		// There are 80 events at 40 a second. Each of the two relays may send two at once.
		if took := hooks[len(hooks)-1].Sub(hooks[0]); took < 1700*time.Millisecond {
			t.Errorf("80 events took %s, want two seconds", took)
		}
	})
}

// logText is what a process has logged.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logText) has(part string) bool { return l.count(part) > 0 }

func (l *logText) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}
