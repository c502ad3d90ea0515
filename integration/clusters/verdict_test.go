//go:build clusters

package clusters_test

import (
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// verdict is the comparison of the tables with what the relays published.
type verdict struct {
	Committed, Published int // orders in the table, events
	Lost, Ghosts         int // an order without a copy; a copy without its order
	Disorder             int // first copies of a key whose number falls
	SeqDisorder          int // the same for key_seq
	SeqTwice             int // first copies with the key_seq of an earlier event of their key
	Lies                 int // told committed and not there, or told rolled back and there
	Half                 int // orders without all of their parts, or parts without their order
	Duplicates           int
	Unknown, Aborts      int // transactions whose fate was unknown; that were told rolled back
	Ended                int64
	problems             []string
}

// Finish ends the producers, waits until the table of the node is drained, ends the relays, and
// compares.
func (l *ledger) Finish(address string) verdict {
	l.t.Helper()
	l.endWriting()
	l.producers.Wait()
	pool, err := l.Open(address)
	fixture.NoError(l.t, err)
	defer pool.Close()
	fixture.AwaitIn(l.t, 2*time.Minute, "the relays publish all events", func() bool {
		var left int
		err := pool.QueryRowContext(l.t.Context(), "SELECT COUNT(*) FROM outbox_event WHERE status <> 1").Scan(&left)
		return err == nil && left == 0
	})
	l.endRelaying()
	l.relays.Wait()
	v := l.judge(pool)
	l.t.Log(v.String() + l.text())
	return v
}

func (l *ledger) judge(pool *sql.DB) verdict {
	l.t.Helper()
	type order struct {
		n     int64
		parts int
	}
	orders := map[string]order{}
	rows, err := pool.QueryContext(l.t.Context(), "SELECT id, n FROM orders")
	fixture.NoError(l.t, err)
	defer rows.Close()
	for rows.Next() {
		var id string
		var o order
		fixture.NoError(l.t, rows.Scan(&id, &o.n))
		orders[id] = o
	}
	fixture.NoError(l.t, rows.Err())
	v := verdict{Committed: len(orders), Ended: l.Ended.Load()}
	parts, err := pool.QueryContext(l.t.Context(), "SELECT order_id, COUNT(*) FROM part GROUP BY order_id")
	fixture.NoError(l.t, err)
	defer parts.Close()
	for parts.Next() {
		var id string
		var n int
		fixture.NoError(l.t, parts.Scan(&id, &n))
		o, ok := orders[id]
		if o.parts = n; ok {
			orders[id] = o
			continue
		}
		v.Half++
		v.problem("half: %d parts without order %s", n, id)
	}
	fixture.NoError(l.t, parts.Err())
	for id, o := range orders {
		if o.parts != l.Parts {
			v.Half++
			v.problem("half: order %s has %d parts", id, o.parts)
		}
	}

	seen := map[string]bool{}
	last := map[string]copyOf{}
	numbers := map[string]bool{}
	for _, c := range l.copies {
		if seen[c.ID] {
			v.Duplicates++
			continue
		}
		seen[c.ID] = true
		o, ok := orders[c.ID]
		if !ok {
			v.Ghosts++
			v.problem("ghost: %s from %s", c.ID, c.Relay)
		}
		if c.Key == "" {
			continue
		}
		number := fmt.Sprintf("%s %d", c.Key, c.KeySeq)
		if numbers[number] {
			v.SeqTwice++
		}
		numbers[number] = true
		before := last[c.Key]
		if ok && o.n <= before.N {
			v.Disorder++
			v.problem("disorder: %s, number %d after %d", c.Key, o.n, before.N)
		}
		if c.KeySeq <= before.KeySeq {
			v.SeqDisorder++
			v.problem("disorder: %s, key_seq %d after %d", c.Key, c.KeySeq, before.KeySeq)
		}
		last[c.Key] = c
	}
	v.Published = len(seen)
	for id := range orders {
		if !seen[id] {
			v.Lost++
			v.problem("lost: %s", id)
		}
	}
	for id, f := range l.told {
		_, there := orders[id]
		switch f {
		case unknown:
			v.Unknown++
		case rolledBack:
			v.Aborts++
		case committed:
		}
		if f == committed && !there || f == rolledBack && there {
			v.Lies++
			v.problem("lie: %s, told %d, there: %t", id, f, there)
		}
	}
	return v
}

func (v *verdict) problem(format string, args ...any) {
	if len(v.problems) < 20 {
		v.problems = append(v.problems, fmt.Sprintf(format, args...))
	}
}

// Check fails the test unless every promise was kept, and unless transactions were aborted: a run in
// which nothing failed proves nothing.
func (v verdict) Check(t *testing.T) {
	t.Helper()
	if v.Lost+v.Ghosts+v.Disorder+v.SeqDisorder+v.Lies+v.Half > 0 {
		t.Errorf("promises were broken:\n  %s", strings.Join(v.problems, "\n  "))
	}
	if v.Aborts == 0 {
		t.Error("no transaction was aborted: the run proves nothing")
	}
}

func (v verdict) String() string {
	return fmt.Sprintf("\ncount: %d committed\ncount: %d lost\ncount: %d ghosts\ncount: %d out of order\n"+
		"count: %d lies\ncount: %d half transactions\ncount: %d duplicates\n"+
		"%d published, key_seq: %d falls, %d used twice; %d unknown, %d aborted, %d times Run ended\n",
		v.Committed, v.Lost, v.Ghosts, v.Disorder, v.Lies, v.Half, v.Duplicates,
		v.Published, v.SeqDisorder, v.SeqTwice, v.Unknown, v.Aborts, v.Ended)
}

// text lists the failures that producers and relays had.
func (l *ledger) text() string {
	var b strings.Builder
	for _, text := range slices.Sorted(maps.Keys(l.failures)) {
		fmt.Fprintf(&b, "%6d %s\n", l.failures[text], text)
	}
	return b.String()
}
