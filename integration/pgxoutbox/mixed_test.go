package pgxoutbox_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// One process writes its events in Publish, and another one with COMMIT, under the same keys. Both
// change their rows first and publish last, and both relay. No transaction fails, no event is lost,
// and the events of a key arrive in the order in which its row was changed.
func TestPgxEagerAndDeferredProcesses(t *testing.T) {
	t.Parallel()
	const accounts, writers, each = 4, 3, 60
	db := testdb.Postgres(t)
	on := func(eager bool) testdb.DB {
		own := db
		own.Connect = func(cfg pgx.ConnConfig) driver.Connector {
			return pgxoutbox.Connector(pgxoutbox.Config{Conn: cfg, Eager: eager})
		}
		return own
	}
	eager := fixture.NewProcess(t, on(true), core.Config{})
	deferred := fixture.JoinProcess(t, on(false), eager.Publisher, core.Config{})
	for id := range accounts {
		fixture.MustExec(t, eager.Pool, fmt.Sprintf("INSERT INTO accounts (id, balance) VALUES (%d, 0)", id))
	}
	eager.RunHot()
	deferred.RunHot()

	var mu sync.Mutex
	var committed []string
	var all sync.WaitGroup
	for p, calls := range map[*fixture.Process]int{eager: 1, deferred: 2} {
		for range writers {
			all.Go(func() {
				for range each {
					ids, err := change(t.Context(), p, rand.Perm(accounts)[:2], calls, rand.IntN(8) == 0)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					committed = append(committed, ids...)
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	eager.AwaitDone(len(committed))
	eager.OnceEach(committed)
	last := map[string]int{}
	for _, d := range eager.Publisher.Accepted() {
		if d.Type == "warm.up" {
			continue
		}
		balance, err := strconv.Atoi(string(d.Payload))
		fixture.NoError(t, err)
		if balance != last[d.Key]+1 {
			t.Errorf("key %s: balance %d arrived after %d", d.Key, balance, last[d.Key])
		}
		last[d.Key] = balance
	}
	if n := eager.Publisher.Overlaps(); n > 0 {
		t.Errorf("%d publishes began beside another one of their key", n)
	}
}

// change adds one to two accounts, and publishes the balances, with one call of Publish or with one
// each, in another order. It returns the ids of the events if it commits.
func change(ctx context.Context, p *fixture.Process, accounts []int, calls int, rollback bool) ([]string, error) {
	tx, err := sqltx.Begin(ctx, p.Pool, nil, core.Postgres)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	first, second := min(accounts[0], accounts[1]), max(accounts[0], accounts[1]) // rows are locked in one order
	var events []core.Event
	for _, id := range []int{first, second} {
		var balance int
		if err := tx.QueryRowContext(ctx, "UPDATE accounts SET balance = balance + 1 WHERE id = $1 RETURNING balance",
			id).Scan(&balance); err != nil {
			return nil, err
		}
		events = append(events, core.Event{
			ID: core.NewEventID(), Type: "grown", Key: fmt.Sprint("account/", id),
			Payload: []byte(strconv.Itoa(balance)),
		})
	}
	ids := []string{events[0].ID, events[1].ID}
	if calls == 1 {
		_, err = p.Outbox.Publish(ctx, tx, events...)
	} else if _, err = p.Outbox.Publish(ctx, tx, events[1]); err == nil {
		_, err = p.Outbox.Publish(ctx, tx, events[0])
	}
	if err != nil || rollback {
		return nil, err
	}
	return ids, tx.Commit()
}
