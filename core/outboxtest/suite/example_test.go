package suite_test

import (
	"context"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox/inboxtest"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
)

// The author of another Repository runs the suite from a test of its own.
func ExampleTestRepository() {
	_ = func(t *testing.T) {
		suite.TestRepository(t, suite.RepositoryHarness{
			New: func(*testing.T) suite.Backend {
				repo := outboxtest.NewRepository() // an empty table of the implementation under test
				return suite.Backend{
					Repository: repo,
					Store:      repo,
					Begin:      func(ctx context.Context) (suite.Transaction, error) { return repo.Begin(ctx) },
					// SELECT ... FOR UPDATE
					Lock: func(ctx context.Context, tx suite.Transaction, ids ...core.RowID) error {
						return tx.(*outboxtest.Tx).LockRows(ctx, ids...)
					},
					Audits: func(testing.TB) int { return len(repo.Audits()) },
				}
			},
			AbortsOnError: true, // as PostgreSQL does
		})
	}
}

// The author of an adapter runs the suite from a test of its own.
func ExampleTestAdapter() {
	_ = func(t *testing.T) {
		suite.TestAdapter(t, suite.AdapterHarness{
			Open: func(t *testing.T, cfg core.Config) suite.Adapter {
				repo := outboxtest.NewRepository() // the repository in the adapter's database
				cfg.Repository = repo
				ob, err := core.New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				return suite.Adapter{
					Outbox:     ob,
					Transactor: repo.Transactor(),
					Publish: func(ctx context.Context, events ...core.Event) error {
						_, err := ob.Publish(ctx, nil, events...)
						return err
					},
					Exec: func(ctx context.Context, query string) error {
						tx, _ := core.TxFromContext(ctx)
						_, err := tx.Exec(ctx, query)
						return err
					},
					Stored: func(context.Context) (ids []string, err error) {
						for _, row := range repo.Rows() {
							ids = append(ids, row.Event.ID)
						}
						return ids, nil
					},
				}
			},
			AbortsOnError: true, // as PostgreSQL does
		})
	}
}

// The author of another store of an inbox runs the suite from a test of its own.
func ExampleTestInboxStore() {
	_ = func(t *testing.T) {
		suite.TestInboxStore(t, suite.InboxHarness{New: func(*testing.T) suite.InboxBackend {
			return suite.InboxBackend{
				Store:      inboxtest.NewStore(), // an empty store of the implementation under test
				Transactor: outboxtest.NewRepository().Transactor(),
			}
		}})
	}
}
