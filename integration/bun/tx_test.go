package bun_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Events that are rolled back are never published, and events that commit take the fast path. This
// holds with savepoints, with parts that fail, and with any context. Each case runs in RunInTx. If
// the pool was opened with the connector, it also runs in Bun's own transactions.
func TestBunFollowsTransactions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		do   func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx)
		rows []string
		hot  []string // nil: as rows
	}{
		"commit": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			fixture.NoError(t, b.publish(ctx, tx, "a", "b"))
		}, []string{"a", "b"}, nil},
		"nested": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			fixture.NoError(t, tx.RunInTx(ctx, nil,
				func(ctx context.Context, sp bun.Tx) error { return b.publish(ctx, sp, "inner") }))
			fixture.NoError(t, b.publish(ctx, tx, "outer"))
		}, []string{"inner", "outer"}, nil},
		"nested with a foreign context, rolled back": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			fixture.NoError(t, b.publish(ctx, tx, "outer"))
			fixture.WantError(t, tx.RunInTx(context.Background(), nil, func(ctx context.Context, sp bun.Tx) error {
				fixture.NoError(t, b.publish(ctx, sp, "ghost"))
				return errReason
			}), errReason)
		}, []string{"outer"}, nil},
		"nested with the context of another transaction, rolled back": {func(
			t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx,
		) {
			fixture.NoError(t, b.publish(ctx, tx, "outer"))
			other, err := b.bare.Conn(ctx)
			fixture.NoError(t, err)
			defer other.Close()
			fixture.WantError(t, tx.RunInTx(context.WithValue(context.Background(), bunOther{}, other), nil,
				func(ctx context.Context, sp bun.Tx) error {
					b.exec(t, ctx, sp.NewInsert().Model(newBOrder("ghost")))
					return errReason
				}), errReason)
		}, []string{"outer"}, nil},
		"savepoints by hand": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			kept, err := tx.BeginTx(context.Background(), nil)
			fixture.NoError(t, err)
			fixture.NoError(t, b.publish(ctx, kept, "kept"))
			fixture.NoError(t, kept.Commit())
			gone, err := tx.Begin()
			fixture.NoError(t, err)
			fixture.NoError(t, b.publish(ctx, gone, "gone"))
			fixture.NoError(t, gone.Rollback())
			fixture.NoError(t, b.publish(ctx, tx, "last"))
		}, []string{"kept", "last"}, nil},
		"savepoints as text": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			for _, query := range []string{"SAVEPOINT a", "", "ROLLBACK TO SAVEPOINT a", "RELEASE SAVEPOINT a"} {
				if query == "" {
					fixture.NoError(t, b.publish(ctx, tx, "gone"))
					continue
				}
				_, err := tx.NewRaw(query).Exec(context.Background())
				fixture.NoError(t, err)
			}
			fixture.NoError(t, b.publish(ctx, tx, "last"))
		}, []string{"last"}, nil},
		"below Bun": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			_, err := tx.Tx.ExecContext(ctx, "SAVEPOINT a") // hooks of Bun do not see it
			fixture.NoError(t, err)
			fixture.NoError(t, b.publish(ctx, tx, "ghost"))
			_, err = tx.Tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT a")
			fixture.NoError(t, err)
			fixture.NoError(t, b.publish(ctx, tx, "last"))
		}, []string{"last"}, nil},
		"prepared": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			_, err := tx.ExecContext(ctx, "SAVEPOINT a")
			fixture.NoError(t, err)
			fixture.NoError(t, b.publish(ctx, tx, "ghost"))
			stmt, err := tx.PrepareContext(ctx, "ROLLBACK TO SAVEPOINT a")
			if b.db.Name == "mysql" { // MySQL refuses SAVEPOINT as a prepared statement
				fixture.Check(t, err != nil && strings.Contains(err.Error(), "1295"), "PrepareContext returned %v", err)
				_, err = tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT a")
				fixture.NoError(t, err)
				fixture.NoError(t, b.publish(ctx, tx, "last"))
				return
			}
			fixture.NoError(t, err)
			defer stmt.Close()
			_, err = stmt.ExecContext(ctx)
			fixture.NoError(t, err)
			fixture.NoError(t, b.publish(ctx, tx, "last"))
		}, []string{"last"}, nil},
		"panic in a savepoint": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			func() {
				defer func() {
					if r := recover(); r != "reason" {
						t.Errorf("recovered %v", r)
					}
				}()
				_ = tx.RunInTx(ctx, nil, func(ctx context.Context, sp bun.Tx) error {
					fixture.NoError(t, b.publish(ctx, sp, "ghost"))
					panic("reason")
				})
			}()
			fixture.NoError(t, b.publish(ctx, tx, "last"))
		}, []string{"last"}, nil},
		"an error that is ignored": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			fixture.NoError(t, b.publish(ctx, tx, "first"))
			err := tx.RunInTx(ctx, nil, func(ctx context.Context, sp bun.Tx) error {
				b.exec(t, ctx, sp.NewInsert().Model(&bPair{A: 1, B: "x"}))
				_, err := sp.NewInsert().Model(&bPair{A: 1, B: "x"}).Exec(ctx)
				return err
			})
			fixture.Check(t, err != nil, "a duplicate was accepted")
			fixture.NoError(t, b.publish(ctx, tx, "last"))
		}, []string{"first", "last"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			eachBunEnv(t, nil, func(t *testing.T, b *bunEnv) {
				b.RunRelay(t)
				want := tc.hot
				if want == nil {
					want = tc.rows
				}
				b.inTx(t, func(ctx context.Context, tx bun.Tx) { tc.do(t, ctx, b, tx) })
				b.wantRows(t, tc.rows...)
				b.WantHot(t, want...)
				b.wantNothingOut(t)
				if !b.way.Connector {
					return
				}
				b.clear(t)
				fixture.NoError(t, b.RunInTx(t.Context(), nil,
					func(ctx context.Context, tx bun.Tx) error { tc.do(t, ctx, b, tx); return nil }))
				b.wantRows(t, tc.rows...)
				b.WantHot(t, append(want, want...)...)
			})
		})
	}
}

type bunOther struct{}

// clear empties the tables between two rounds.
func (b *bunEnv) clear(t *testing.T) {
	t.Helper()
	for _, table := range []string{"outbox_event", "b_pairs", "b_orders"} {
		_, err := b.Plain.ExecContext(t.Context(), "DELETE FROM "+table)
		fixture.NoError(t, err)
	}
}

// wantNothingOut requires that every connection is back in the pool.
func (b *bunEnv) wantNothingOut(t *testing.T) {
	t.Helper()
	fixture.Await(t, "all connections to be back", func() bool { return b.Stats().InUse == 0 })
}

// RunInTx within RunInTx is a savepoint.
func TestBunRunInTxNested(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, nil, func(t *testing.T, b *bunEnv) {
		b.RunRelay(t)
		b.inTx(t, func(ctx context.Context, tx bun.Tx) {
			fixture.NoError(t, b.ob.Publish(ctx, nil, core.Event{Type: "outer"})) // the transaction in the context
			fixture.WantError(t, b.ob.RunInTx(ctx, func(ctx context.Context, sp bun.Tx) error {
				fixture.NoError(t, b.publish(ctx, sp, "gone"))
				b.exec(t, ctx, sp.NewInsert().Model(&bPair{A: 1, B: "gone"}))
				fixture.NoError(t, b.ob.RunInTx(ctx,
					func(ctx context.Context, sp bun.Tx) error { return b.publish(ctx, sp, "gone too") }))
				return errReason
			}), errReason)
			fixture.NoError(t, b.ob.RunInTx(ctx, func(ctx context.Context, sp bun.Tx) error {
				b.exec(t, ctx, sp.NewInsert().Model(&bPair{A: 1, B: "kept"}))
				return b.publish(ctx, sp, "kept")
			}))
		})
		b.wantRows(t, "outer", "kept")
		b.WantCount(t, "b_pairs", 1)
		b.WantHot(t, "outer", "kept")
	})
}

// If the context of a nested call ends, its savepoint is rolled back all the same. Bun's own nested
// RunInTx does not send ROLLBACK TO then, and the outer transaction commits the writes of the inner
// one.
func TestBunRunInTxNestedContextEnds(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, nil, func(t *testing.T, b *bunEnv) {
		b.RunRelay(t)
		b.inTx(t, func(ctx context.Context, tx bun.Tx) {
			fixture.NoError(t, b.publish(ctx, tx, "outer"))
			short, cancel := context.WithCancel(ctx)
			fixture.WantError(t, b.ob.RunInTx(short, func(ctx context.Context, sp bun.Tx) error {
				b.exec(t, ctx, sp.NewInsert().Model(newBOrder("gone")))
				cancel()
				return ctx.Err()
			}), context.Canceled)
			fixture.WantError(t, b.ob.RunInTx(short, func(context.Context, bun.Tx) error {
				t.Error("the function ran although its context had ended")
				return nil
			}), context.Canceled)
		})
		b.WantCount(t, "b_orders", 0)
		b.wantRows(t, "outer")
		b.WantHot(t, "outer")
	})
}

// After a context that ends, an error or a panic, the transaction is rolled back, no event is
// published, and the connection goes back to the pool.
func TestBunRunInTxRollsBack(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(cancel context.CancelFunc) error{
		"error":   func(context.CancelFunc) error { return errReason },
		"context": func(cancel context.CancelFunc) error { cancel(); return nil },
		"panic":   func(context.CancelFunc) error { panic("reason") },
	} {
		t.Run(name, func(t *testing.T) {
			eachBunEnv(t, nil, func(t *testing.T, b *bunEnv) {
				b.RunRelay(t)
				o := newBOrder("recorded")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				err := func() (err error) {
					defer func() {
						if r := recover(); r != nil {
							err = errReason
						}
					}()
					return b.ob.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
						b.exec(t, ctx, tx.NewInsert().Model(o))
						fixture.NoError(t, b.publish(ctx, tx, "gone"))
						return fail(cancel)
					})
				}()
				fixture.Must(t, err != nil, "committed")
				b.wantNothingOut(t)
				b.WantCount(t, "b_orders", 0)
				b.wantRows(t)
				b.WantHot(t)
				if n := len(o.Recorded()); n != 1 {
					t.Fatalf("%d events are recorded, want 1", n)
				}
			})
		})
	}
}

// RunInTx takes one connection of the pool, as a transaction does.
func TestBunRunInTxOnOneConnection(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, nil, func(t *testing.T, b *bunEnv) {
		mapBun(b)
		b.SetMaxOpenConns(1)
		for range 3 {
			b.inTx(t, func(ctx context.Context, tx bun.Tx) {
				b.exec(t, ctx, tx.NewInsert().Model(&bProduct{Name: "x"}))
				fixture.NoError(t, b.publish(ctx, tx, "t"))
			})
		}
		b.wantRows(t, "product.x.create 1", "product.x.create 2", "product.x.create 3", "t", "t", "t")
	})
}

// The options of the transaction reach the database.
func TestBunRunInTxOptions(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, nil, func(t *testing.T, b *bunEnv) {
		if b.db.Dialect == core.SQLite {
			t.Log("SQLite has no read-only transactions")
			return
		}
		err := b.ob.RunInTxOptions(t.Context(), &sql.TxOptions{ReadOnly: true},
			func(ctx context.Context, tx bun.Tx) error {
				return b.publish(ctx, tx, "t")
			})
		fixture.Must(t, err != nil, "wrote in a read-only transaction")
		b.wantRows(t)
	})
}

// Publish without a transaction returns an error before it writes.
func TestBunPublishNeedsATransaction(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, nil, func(t *testing.T, b *bunEnv) {
		ctx := t.Context()
		conn, err := b.Conn(ctx)
		fixture.NoError(t, err)
		defer conn.Close()
		ended, err := b.BeginTx(ctx, nil)
		fixture.NoError(t, err)
		fixture.NoError(t, ended.Rollback())
		var nilTx *bun.Tx
		var nilConn *bun.Conn
		for name, tx := range map[string]bun.IDB{
			"a pool": b.DB, "a connection": conn, "a pointer to a connection": &conn,
			"a transaction that has ended": ended, "no transaction in the context": nil, "a nil transaction": nilTx,
			"a zero transaction": bun.Tx{}, "a nil connection": nilConn,
			"a zero connection": bun.Conn{}, "something else": struct{ bun.IDB }{b.DB},
		} {
			if err := b.publish(ctx, tx, "t"); !errors.Is(err, core.ErrNoTransaction) {
				t.Errorf("%s: %v, want ErrNoTransaction", name, err)
			}
		}
		b.wantRows(t)
		fixture.NoError(t,
			b.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error { return b.publish(ctx, &tx, "pointer") }))
		b.wantRows(t, "pointer")
	})
}

// Publish finds the open transaction of a connection from a pool with the connector.
func TestBunPublishOnTheConnectionOfATransaction(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		b.RunRelay(t)
		conn, err := b.Conn(t.Context())
		fixture.NoError(t, err)
		defer conn.Close()
		tx, err := conn.BeginTx(t.Context(), nil)
		fixture.NoError(t, err)
		fixture.NoError(t, b.publish(t.Context(), conn, "t"))
		fixture.NoError(t, tx.Commit())
		b.WantHot(t, "t")
	})
}

// Bun's own transactions on a pool without the connector cannot be tracked. Their events are as
// safe, but wait for the poller, or are refused.
func TestBunUntrackedTransactions(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withoutConnector, func(t *testing.T, b *bunEnv) {
		b.RunRelay(t)
		fixture.NoError(t, b.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			fixture.NoError(t, b.publish(ctx, tx, "outer"))
			fixture.WantError(t, tx.RunInTx(context.Background(), nil, func(ctx context.Context, sp bun.Tx) error {
				fixture.NoError(t, b.publish(ctx, sp, "gone"))
				return errReason
			}), errReason)
			return nil
		}))
		b.wantRows(t, "outer")
		b.WantHot(t)
		b.WantUntracked(t, 2)
		strict, err := bunoutbox.New(b.bare, bunoutbox.Config{RejectUntracked: true})
		fixture.NoError(t, err)
		fixture.WantError(t, b.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			return strict.Publish(ctx, tx, core.Event{Type: "t"})
		}), core.ErrUntracked)
		fixture.NoError(t, strict.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
			return strict.Publish(ctx, tx, core.Event{Type: "tracked"})
		}))
		b.wantRows(t, "outer", "tracked")
	})
}

// Bun's driver returns no error when PostgreSQL answers COMMIT with ROLLBACK. The outbox returns
// one.
func TestBunCommitOfAnAbortedTransaction(t *testing.T) {
	t.Parallel()
	postgres := func(way adapters.BunWay) bool { return way.PGDriver }
	eachBunEnv(t, postgres, func(t *testing.T, b *bunEnv) {
		b.RunRelay(t)
		aborted := func(ctx context.Context, tx bun.Tx) error {
			fixture.NoError(t, b.publish(ctx, tx, "ghost"))
			if _, err := tx.ExecContext(ctx, "SELECT 1 FROM nowhere"); err == nil {
				t.Error("a missing table was read")
			}
			return nil
		}
		if err := b.ob.RunInTx(t.Context(), aborted); !errors.Is(err, core.ErrTxAborted) {
			t.Errorf("RunInTx: %v, want ErrTxAborted", err)
		}
		if b.way.Connector {
			if err := b.RunInTx(t.Context(), nil, aborted); !errors.Is(err, core.ErrTxAborted) {
				t.Errorf("RunInTx of Bun: %v, want ErrTxAborted", err)
			}
		}
		b.wantRows(t)
		b.WantHot(t)
	})
}

// On MariaDB, a deadlock's victim that ignores the error has lost its transaction, and COMMIT
// returns no error.
func TestBunDeadlockIgnored(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]adapters.BunWay{"plain": {}, "connector": {Connector: true}} {
		t.Run(name, func(t *testing.T) {
			b := newBunEnv(t, testdb.MariaDB(t), way)
			b.RunRelay(t)
			var lost error
			err := b.ob.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
				fixture.NoError(t, b.publish(ctx, tx, "ghost"))
				lost = adapters.BecomeVictim(ctx, t, b.db, func(ctx context.Context, query string) error {
					_, err := tx.ExecContext(ctx, query)
					return err
				})
				return nil
			})
			fixture.Must(t, lost != nil, "no deadlock")
			fixture.WantError(t, err, core.ErrTxAborted)
			b.wantRows(t)
			b.WantHot(t)
		})
	}
}
