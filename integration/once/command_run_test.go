package once_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// Sixteen runs of one command come at once, in both forms. There is one execution, and one result.
func TestCommandOnDatabases(t *testing.T) {
	t.Parallel()
	eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
		fixture.MustExec(t, w.pool, "CREATE TABLE orders_made (name VARCHAR(64))")
		commands, err := command.New(once.Config{Store: w.keys(), Wait: 30 * time.Second})
		fixture.NoError(t, err)
		transactor := sqltx.NewTransactor(w.pool, w.db.Dialect)
		var runs atomic.Int64
		insert := func(ctx context.Context, tx core.Tx) (int64, error) {
			_, err := tx.Exec(ctx, "INSERT INTO orders_made (name) VALUES ('o')")
			return runs.Add(1), err
		}
		for name, run := range map[string]func(cmd command.Command) (int64, bool, error){
			"lease": func(cmd command.Command) (n int64, replayed bool, err error) {
				return command.Run(t.Context(), commands, cmd, func(ctx context.Context) (n int64, err error) {
					err = sqltx.RetryTx(ctx, transactor,
						func(ctx context.Context, tx core.Tx) error { n, err = insert(ctx, tx); return err })
					return n, err
				})
			},
			"tx": func(cmd command.Command) (n int64, replayed bool, err error) {
				err = sqltx.RetryTx(t.Context(), transactor, func(ctx context.Context, tx core.Tx) (err error) {
					n, replayed, err = command.RunTx(ctx, commands, nil, cmd,
						func(ctx context.Context) (int64, error) { return insert(ctx, tx) })
					return err
				})
				return n, replayed, err
			},
			"own tx": func(cmd command.Command) (int64, bool, error) {
				return command.RunInTx(t.Context(), commands, transactor, cmd, insert)
			},
		} {
			t.Run(name, func(t *testing.T) {
				fixture.MustExec(t, w.pool, "DELETE FROM orders_made")
				cmd := command.Command{
					Type: "create " + name, Tenant: "acme",
					Key: command.EventKey("QuoteAccepted", "018f"), Input: "quote",
				}
				failed := errors.New("failed")
				_, _, err := command.RunInTx(t.Context(), commands, transactor, cmd,
					func(ctx context.Context, tx core.Tx) (int, error) {
						n, err := insert(ctx, tx)
						return int(n), errors.Join(err, failed)
					})
				if !errors.Is(err, failed) {
					t.Error(err)
				}
				var results sync.Map
				var wg sync.WaitGroup
				var fresh atomic.Int64
				for range 16 {
					wg.Go(func() {
						n, replayed, err := run(cmd)
						if err != nil {
							t.Error(err)
						}
						if !replayed {
							fresh.Add(1)
						}
						results.Store(n, true)
					})
				}
				wg.Wait()
				different := 0
				results.Range(func(any, any) bool { different++; return true })
				if rows := fixture.Count(t, w.pool, "SELECT COUNT(*) FROM orders_made"); rows != 1 ||
					fresh.Load() != 1 || different != 1 {
					t.Errorf("%d orders, %d fresh, %d results", rows, fresh.Load(), different)
				}
				cmd.Input = "another quote"
				if _, _, err := run(cmd); !errors.Is(err, once.ErrFingerprintMismatch) {
					t.Errorf("another input: %v", err)
				}
			})
		}
	})
}

// In a consumer's transaction the command, its row and the effect that it enqueues commit together.
// A redelivery changes nothing.
func TestCommandAndEffectInOneTransaction(t *testing.T) {
	t.Parallel()
	eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
		fixture.MustExec(t, w.pool, "CREATE TABLE orders_made (name VARCHAR(64))")
		commands, err := command.New(once.Config{Store: w.keys()})
		fixture.NoError(t, err)
		deliver := func(fail error) error {
			return w.inTx(func(ctx context.Context, tx core.Tx) error {
				_, _, err := command.RunTx(ctx, commands, nil,
					command.Command{Type: "create-order", Key: command.EventKey("QuoteAccepted", "018f")},
					func(ctx context.Context) (string, error) {
						if _, err := tx.Exec(ctx, "INSERT INTO orders_made (name) VALUES ('o')"); err != nil {
							return "", err
						}
						_, added, err := w.queue.Enqueue(ctx, nil, mail("confirm"))
						if !added && err == nil {
							err = errors.New("the effect was there already")
						}
						return "o-1", err
					})
				return errors.Join(err, fail)
			})
		}
		crash := errors.New("crash before the commit")
		if err := deliver(crash); !errors.Is(err, crash) {
			t.Error(err)
		}
		for range 3 {
			fixture.NoError(t, deliver(nil))
		}
		for table, want := range map[string]int64{"orders_made": 1, "side_effect_command": 1, "outbox_event": 1} {
			if n := fixture.Count(t, w.pool, "SELECT COUNT(*) FROM "+table); n != want {
				t.Errorf("%d rows in %s, want %d", n, table, want)
			}
		}
		w.relay(w.worker(sent))
		w.await(mail("confirm"), command.StatusCompleted)
		if n := len(w.called()); n != 1 {
			t.Errorf("%d calls", n)
		}
	})
}
