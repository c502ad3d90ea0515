package outboxtest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// A test that checks only events needs no database for code on database/sql or an ORM.
func ExampleOpenDB() {
	t := &testing.T{} // the t of the test

	db, err := outboxtest.OpenDB(core.Postgres)
	must(t, err)
	ob := outboxtest.NewOutbox(t, core.Config{})

	ctx := context.Background()
	tx, _ := db.BeginTx(ctx, nil)
	_, _ = tx.ExecContext(ctx, "INSERT INTO orders (status) VALUES ('placed')")
	own, _ := sqltx.TxOf(ctx, tx)
	_, err = ob.Publish(ctx, own, core.Event{Type: "order.placed", AggregateID: "7"})
	fmt.Println(err, len(ob.Repository.Rows()))
	fmt.Println(tx.Commit(), len(ob.Repository.Rows()))
	// Output:
	// <nil> 0
	// <nil> 1
}

// The test chooses the clock, the dialect and the answers of the repository.
func ExampleNewRepository() {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	repo := outboxtest.NewRepository(
		outboxtest.WithClock(func() time.Time { return noon }),
		outboxtest.WithDialect(core.MySQL),
		outboxtest.WithExec(func(string, []any) (int64, error) { return 2, nil }),
	)
	_ = repo.Transactor().RunInTx(context.Background(), func(ctx context.Context, tx core.Tx) error {
		affected, err := tx.Exec(ctx, "UPDATE orders SET status = 'paid'")
		fmt.Println(tx.Dialect(), affected, err)
		return nil
	})
	// Output: mysql 2 <nil>
}

// A test finds a model that was not stored through the outbox, because the model still has its
// events.
func ExampleRequireNothingRecorded() {
	type order struct{ core.Recorder }

	t := &testing.T{} // the t of the test
	o := &order{}
	outboxtest.RequireNothingRecorded(t, o)
	fmt.Println(t.Failed())
	// Output: false
}
