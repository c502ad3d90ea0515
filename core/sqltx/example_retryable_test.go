package sqltx_test

import (
	"context"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// A transaction that lost against another one is run again as a whole.
func ExampleRetryable() {
	repo := outboxtest.NewRepository()
	attempts := 0
	work := func(ctx context.Context, tx core.Tx) error {
		if attempts++; attempts < 3 {
			return fmt.Errorf("update stock: %w", core.ErrTxAborted) // the victim of a deadlock
		}
		return nil
	}
	var err error
	for range 5 {
		if err = repo.Transactor().RunInTx(context.Background(), work); !sqltx.Retryable(err) {
			break
		}
	}
	fmt.Println(attempts, err)
	// Output: 3 <nil>
}
