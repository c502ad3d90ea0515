package suite_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
)

func TestRepositoryInMemory(t *testing.T) {
	for _, d := range []core.Dialect{core.Postgres, core.MySQL, core.SQLite} {
		t.Run(string(d), func(t *testing.T) {
			suite.TestRepository(t, suite.RepositoryHarness{
				New: func(*testing.T) suite.Backend {
					r := outboxtest.NewRepository(outboxtest.WithDialect(d))
					return suite.Backend{
						Repository: r,
						Store:      r,
						Begin:      func(ctx context.Context) (suite.Transaction, error) { return r.Begin(ctx) },
						Lock: func(ctx context.Context, tx suite.Transaction, ids ...core.RowID) error {
							return tx.(*outboxtest.Tx).LockRows(ctx, ids...)
						},
						Audits: func(testing.TB) int { return len(r.Audits()) },
					}
				},
				AbortsOnError: d == core.Postgres,
			})
		})
	}
}

func TestAdapterInMemory(t *testing.T) {
	for _, d := range []core.Dialect{core.Postgres, core.MySQL, core.SQLite} {
		t.Run(string(d), func(t *testing.T) {
			suite.TestAdapter(t, suite.AdapterHarness{
				Open: func(t *testing.T, cfg core.Config) suite.Adapter {
					return openInMemory(t, d, cfg)
				},
				AbortsOnError: d == core.Postgres,
			})
		})
	}
}

func openInMemory(t *testing.T, d core.Dialect, cfg core.Config) suite.Adapter {
	t.Helper()
	r := outboxtest.NewRepository(outboxtest.WithDialect(d),
		outboxtest.WithExec(func(query string, _ []any) (int64, error) {
			return 0, fmt.Errorf("no such table: %s", query)
		}))
	cfg.Repository = r
	ob, err := core.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return suite.Adapter{
		Outbox:     ob,
		Transactor: r.Transactor(),
		Another:    r.Transactor(),
		Publish: func(ctx context.Context, events ...core.Event) error {
			_, err := ob.Publish(ctx, nil, events...)
			return err
		},
		Exec: func(ctx context.Context, query string) error {
			tx, _ := core.TxFromContext(ctx)
			_, err := tx.Exec(ctx, query)
			return err
		},
		Stored: func(context.Context) ([]string, error) {
			var ids []string
			for _, row := range r.Rows() {
				ids = append(ids, row.Event.ID)
			}
			return ids, nil
		},
		RefuseCommit: func(ctx context.Context) error {
			tx := txOf(ctx)
			tx.FailCommit(outboxtest.CommitRefused)
			return nil
		},
		LoseCommit: func(ctx context.Context, committed bool) error {
			tx := txOf(ctx)
			if committed {
				tx.FailCommit(outboxtest.CommitAnswerLost)
			} else {
				tx.FailCommit(outboxtest.CommitNotSent)
			}
			return nil
		},
		Deadlock: func(ctx context.Context) error {
			if d == core.SQLite {
				return errors.ErrUnsupported
			}
			tx := txOf(ctx)
			return tx.Deadlock()
		},
		Disconnect: func(ctx context.Context) error {
			tx := txOf(ctx)
			tx.Disconnect()
			return nil
		},
	}
}

// txOf returns the transaction that ctx carries. It also works for an adapter with a mistake.
func txOf(ctx context.Context) *outboxtest.Tx {
	tx, _ := core.TxFromContext(ctx)
	if wrong, ok := tx.(*wrongTx); ok {
		return wrong.Tx
	}
	return tx.(*outboxtest.Tx)
}
