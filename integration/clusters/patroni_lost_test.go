//go:build clusters

package clusters_test

import (
	"database/sql"
	"maps"
	"slices"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// orderIDs returns the orders that a node has.
func (l *ledger) orderIDs(pool *sql.DB) map[string]bool {
	l.t.Helper()
	rows, err := pool.QueryContext(l.t.Context(), "SELECT id FROM orders")
	fixture.NoError(l.t, err)
	defer rows.Close()
	all := map[string]bool{}
	for rows.Next() {
		var id string
		fixture.NoError(l.t, rows.Scan(&id))
		all[id] = true
	}
	fixture.NoError(l.t, rows.Err())
	return all
}

// missing counts the transactions that were told committed, and that the database does not have.
func (l *ledger) missing(address string) (n int) {
	l.t.Helper()
	l.mu.Lock()
	var told []string
	for id, f := range l.told {
		if f == committed {
			told = append(told, id)
		}
	}
	l.mu.Unlock()
	pool, err := l.Open(address)
	fixture.NoError(l.t, err)
	defer pool.Close()
	there := l.orderIDs(pool)
	for _, id := range told {
		if !there[id] {
			n++
		}
	}
	return n
}

// withoutLost compares again, without the transactions that the database has lost after it had told
// that they are committed, or after their events were published: no outbox can keep them. It is
// called after Finish.
func (l *ledger) withoutLost(address string) verdict {
	l.t.Helper()
	pool, err := l.Open(address)
	fixture.NoError(l.t, err)
	defer pool.Close()
	there := l.orderIDs(pool)
	l.copies = slices.DeleteFunc(l.copies, func(c copyOf) bool {
		return !there[c.ID] && l.told[c.ID] != rolledBack
	})
	maps.DeleteFunc(l.told, func(id string, f fate) bool { return f == committed && !there[id] })
	return l.judge(pool)
}
