package inbox_test

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

var errHandler = errors.New("the handler failed")

// committing returns statements that commit the transaction in which they are executed.
func committing(d core.Dialect) []string {
	if d == core.MySQL {
		return []string{"COMMIT", "CREATE TABLE on_the_way (id INT)", "TRUNCATE TABLE staging"}
	}
	return []string{"COMMIT"}
}

// A handler commits by a statement, and fails afterwards. The row that says that the event is
// processed is committed too. The message is not acknowledged as a duplicate of itself. So the
// error shows that work was left undone.
func TestInboxHandlerThatCommitsAndFails(t *testing.T) {
	t.Parallel()
	for name, open := range inboxORMs {
		t.Run(name, func(t *testing.T) {
			adapters.EachDatabase(t, name, func(t *testing.T, db testdb.DB) {
				if db.Dialect == core.SQLite {
					db.DSN += "&_pragma=foreign_keys(1)" // Ent requires it
				}
				w := newInboxWorld(t, db, open(t, db), named)
				fixture.MustExec(t, w.pool, "CREATE TABLE staging (id INT)")
				want := map[string]int{}
				for n, statement := range committing(db.Dialect) {
					id := string(rune('a' + n))
					handle := w.in.Middleware(func(msg *message.Message) ([]*message.Message, error) {
						if err := w.apply(msg, "before"); err != nil {
							return nil, err
						}
						return nil, errors.Join(w.orm.exec(msg.Context(), statement), errHandler)
					})
					_, err := handle(inboxMessage(id))
					fixture.WantError(t, err, coreinbox.ErrTransactionEnded)
					fixture.WantError(t, err, errHandler)
					_, err = handle(inboxMessage(id))
					fixture.NoError(t, err)
					want[id+" before"] = 1
				}
				w.wantEffects(want)
				w.hears("failed", len(want))
				w.hears("duplicate", len(want))
				w.hears("processed", 0)
			})
		})
	}
}

// The same holds in a batch, where each message by itself would be a duplicate, and when the
// transaction is tried again because of other transactions.
func TestInboxBatchThatCommitsAndFails(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]func(d core.Dialect) error{
		"permanently":       func(core.Dialect) error { return errHandler },
		"because of others": inboxDeadlock,
	} {
		t.Run(name, func(t *testing.T) {
			eachInbox(t, func(t *testing.T, w *inboxWorld) {
				fails := failure(w.db.Dialect)
				commits := func(ctx context.Context, msgs ...*message.Message) error {
					for _, msg := range msgs {
						if err := w.apply(msg, "before"); err != nil {
							return err
						}
					}
					return errors.Join(w.orm.exec(ctx, "COMMIT"), fails)
				}
				batch := func() []error {
					return w.in.ProcessBatch(t.Context(), []*message.Message{inboxMessage("a"), inboxMessage("b")},
						func(ctx context.Context, fresh []*message.Message) error {
							return commits(ctx, fresh...)
						})
				}
				for _, err := range batch() {
					fixture.WantError(t, err, coreinbox.ErrTransactionEnded)
				}
				for _, err := range batch() {
					fixture.NoError(t, err)
				}
				single := w.in.Middleware(func(msg *message.Message) ([]*message.Message, error) {
					return nil, commits(msg.Context(), msg)
				})
				_, err := single(inboxMessage("c"))
				fixture.WantError(t, err, coreinbox.ErrTransactionEnded)
				_, err = single(inboxMessage("c"))
				fixture.NoError(t, err)
				want := map[string]int{"a before": 1, "b before": 1, "c before": 1}
				if got := w.effects(); !maps.Equal(got, want) {
					t.Errorf("effects are %v, want %v", got, want)
				}
				w.hears("failed", 3)
				w.hears("processed", 0)
			}, named)
		})
	}
}

// A handler ends the transaction through the transaction's method. The inbox reports that, whether
// the handler failed or not.
func TestInboxHandlerThatEndsItsTransaction(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		for id, fails := range map[string]error{"fails": errHandler, "succeeds": nil} {
			handle := w.in.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				if err := w.apply(msg, "before"); err != nil {
					return nil, err
				}
				tx, err := sqltx.FromContext(msg.Context())
				if err != nil {
					return nil, err
				}
				return nil, errors.Join(tx.Commit(), fails)
			})
			_, err := handle(inboxMessage(id))
			fixture.WantError(t, err, coreinbox.ErrTransactionEnded)
			_, err = handle(inboxMessage(id))
			fixture.NoError(t, err)
		}
		w.wantEffects(map[string]int{"fails before": 1, "succeeds before": 1})
	}, named)
}
