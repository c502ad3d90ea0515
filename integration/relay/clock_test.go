package relay_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// jump makes the database's clock jump for these tables: it moves every time in them the other way.
// The clock of a shared server itself cannot be set.
func jump(t *testing.T, d core.Dialect, pool *sql.DB, by time.Duration) {
	t.Helper()
	for table, columns := range map[string][]string{
		"outbox_event": {"available_at", "lease_until", "created_at", "done_at"},
		"outbox_key":   {"used_at"},
		"outbox_relay": {"seen_at", "started_at", "claimed_at", "published_at"},
	} {
		var sets []string
		for _, c := range columns {
			sets = append(sets, fmt.Sprintf(map[core.Dialect]string{
				core.Postgres: "%s = %[1]s - interval '1 microsecond' * %d",
				core.MySQL:    "%s = %[1]s - INTERVAL %d MICROSECOND",
				core.SQLite:   "%s = %[1]s - %d",
			}[d], c, by.Microseconds()))
		}
		fixture.MustExec(t, pool, "UPDATE "+table+" SET "+strings.Join(sets, ", "))
	}
}

// stoppable is a repository that claims nothing after stop.
type stoppable struct {
	*sqloutbox.Repository

	mu      sync.RWMutex
	stopped bool
}

// stop returns when no claim is under way.
func (s *stoppable) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}

func (s *stoppable) ClaimUnordered(ctx context.Context, req core.ClaimRequest) ([]core.Claimed, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.stopped {
		return nil, nil
	}
	return s.Repository.ClaimUnordered(ctx, req)
}

func (s *stoppable) ClaimHeads(ctx context.Context, req core.ClaimRequest, after core.KeyID) (
	[]core.Claimed, core.KeyID, error,
) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.stopped {
		return nil, core.KeyID{}, nil
	}
	return s.Repository.ClaimHeads(ctx, req, after)
}

// The clock of the database jumps an hour forwards while a relay publishes. The relay's leases and
// a delay end too early. Another relay publishes the events of these leases a second time. No event
// is lost, and the key keeps its order.
func TestClockJumpsForwards(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		cfg := core.Config{
			Relay: relay.Config{
				PollInterval: 20 * time.Millisecond, PublishTimeout: time.Minute,
				HotLease: 3 * time.Minute, ClaimLease: 3 * time.Minute,
			},
		}
		holder := fixture.NewProcess(t, db, cfg)
		claims := &stoppable{Repository: holder.Repository}
		fast := cfg
		fast.Repository = claims
		holder.NewOutbox(fast)
		holder.RunHot()
		holder.Publisher.Block()
		t.Cleanup(holder.Publisher.Unblock)
		ids := holder.Publish(core.Event{Type: "e", Key: "k"}, core.Event{Type: "e", Key: "k"},
			core.Event{Type: "held"}, core.Event{Type: "later", Delay: 30 * time.Minute})
		other := fixture.JoinProcess(t, db, &outboxtest.Publisher{}, cfg)
		fixture.Await(t, "the first relay holds events", func() bool {
			return holder.Publisher.InFlight() == 2
		})
		claims.stop() // otherwise the first relay could claim its events again
		jump(t, db.Dialect, holder.Pool, time.Hour)
		other.Run()
		fixture.Await(t, "the other relay has published all", func() bool { return len(other.Accepted()) == len(ids) })
		other.OnceEach(ids)
		inKeyOrder(t, other.Publisher.Accepted())
		holder.Publisher.Unblock()
		fixture.Await(t, "the first relay has published what it held", func() bool {
			return slices.Contains(holder.Accepted(), ids[0]) && slices.Contains(holder.Accepted(), ids[2])
		})
		holder.AwaitDone(len(ids))
		inKeyOrder(t, holder.Publisher.Accepted())
	})
}

// The clock of the database jumps an hour backwards. Events from before are due when the clock has
// reached that time again, and the later events of their keys wait behind them. Explain says until
// when. All other events go on. After the statement of docs/how-it-works.md no event has to wait.
func TestClockJumpsBackwards(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		p := fixture.NewProcess(t, db, core.Config{Relay: relay.Config{PollInterval: 20 * time.Millisecond}})
		leased := p.Publish(core.Event{Type: "leased"})
		rows, err := p.Repository.ClaimUnordered(t.Context(), core.ClaimRequest{
			Node: "gone", ClaimNo: 1, Lease: time.Minute, MaxLease: 15 * time.Minute, Limit: 1, MaxBytes: 1 << 20,
		})
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		fixture.NoError(t, p.Repository.Beat(t.Context(), core.Heartbeat{Node: "gone", AllTopics: true}))
		before := p.Publish(core.Event{Type: "e", Key: "k"}, core.Event{Type: "e"})
		jump(t, db.Dialect, p.Pool, -time.Hour)
		relays, err := p.Outbox.Relays(t.Context())
		fixture.Check(t, err == nil && len(relays) == 1 && !relays[0].Alive(),
			"a relay that was seen in the future is alive: %+v %v", relays, err)
		after := p.Publish(core.Event{Type: "e", Key: "k"}, core.Event{Type: "e"})
		p.Run()
		fixture.Await(t, "the new event without a key is published", func() bool { return len(p.Accepted()) > 0 })
		api, err := sqlops.New(p.Outbox)
		fixture.NoError(t, err)
		for id, want := range map[string]ops.Reason{
			before[0]: ops.ReasonNotDue, before[1]: ops.ReasonNotDue, after[0]: ops.ReasonBehind,
			leased[0]: ops.ReasonLeased,
		} {
			x, err := api.Explain(t.Context(), id)
			fixture.NoError(t, err)
			first := x[0].Event
			if x[0].Other != nil {
				first = *x[0].Other
			}
			until := first.AvailableAt
			if first.Leased() {
				until = first.LeaseUntil
			}
			if ahead := until.Sub(first.ReadAt); x[0].Reason != want || ahead < 50*time.Minute ||
				!strings.Contains(x[0].Text, until.UTC().Format(time.DateTime)) {
				t.Errorf("%s, want %s; it waits for %s more: %s", x[0].Reason, want, ahead, x[0].Text)
			}
		}
		if got := p.Accepted(); !slices.Equal(got, after[1:]) {
			t.Errorf("published %v, want %v", got, after[1:])
		}
		now := map[core.Dialect]string{
			core.Postgres: "now()", core.MySQL: "UTC_TIMESTAMP(6)", core.SQLite: "unixepoch() * 1000000",
		}[db.Dialect]
		fixture.MustExec(t, p.Pool, fmt.Sprintf("UPDATE outbox_event SET available_at = %s "+
			"WHERE status IN (0, 2) AND created_at > %[1]s", now))
		all := slices.Concat(leased, before, after)
		p.AwaitDone(len(all))
		p.OnceEach(all)
		inKeyOrder(t, p.Publisher.Accepted())
	})
}

// Another relay's heartbeat shows a clock that is 20 s ahead, as a node of a cluster may have. This
// relay's leases last longer by that, of the fast path and of claims, so that the other relay does
// not take over rows that are worked on.
func TestLeaseIsLongerWhereAnotherClockIsAhead(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		p := fixture.NewProcess(t, db, core.Config{Relay: relay.Config{PollInterval: 20 * time.Millisecond}})
		fixture.NoError(t, p.Repository.Beat(t.Context(), core.Heartbeat{Node: "other", AllTopics: true}))
		jump(t, db.Dialect, p.Pool, -20*time.Second)
		p.Publisher.Block()
		t.Cleanup(p.Publisher.Unblock)
		p.Run()
		longest := func(claim string) (seconds float64) {
			fixture.NoError(t, p.Pool.QueryRowContext(t.Context(), "SELECT COALESCE(MAX("+map[core.Dialect]string{
				core.Postgres: "extract(epoch FROM lease_until - clock_timestamp())",
				core.MySQL:    "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lease_until) / 1000000",
				core.SQLite:   "lease_until / 1000000.0 - (julianday('now') - 2440587.5) * 86400",
			}[db.Dialect]+"), 0) FROM outbox_event WHERE event_type = '"+claim+"'").Scan(&seconds))
			return seconds
		}
		fixture.Await(t, "the lease of the fast path is longer", func() bool {
			p.Publish(core.Event{Type: "hot"})
			return longest("hot") > 20
		})
		fixture.MustExec(t, p.Pool, "UPDATE outbox_event SET event_type = 'cold', lease_until = NULL "+
			"WHERE event_type = 'hot'")
		fixture.Await(t, "the lease of a claim is longer", func() bool { return longest("cold") > 40 })
	})
}
