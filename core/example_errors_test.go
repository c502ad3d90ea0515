package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// A publisher that knows the kind of a refusal marks its error.
func ExampleClassOf() {
	cause := errors.New("refused")
	for _, err := range []error{
		core.Permanent(cause), core.Transient(cause), core.Unavailable(cause), core.UnavailableForKey(cause),
		core.PutOff(cause, time.Minute), core.Unroutable(cause),
	} {
		class, _ := core.ClassOf(err)
		fmt.Println(class)
	}
	_, marked := core.ClassOf(cause)
	fmt.Println(marked)
	// Output:
	// permanent
	// transient
	// unavailable
	// key_unavailable
	// key_unavailable
	// unroutable
	// false
}

// relay.Config.Classifier adds the meaning of one publisher's errors to the default.
func ExampleDefaultClassifier() {
	errOverQuota := errors.New("over quota")
	classify := func(err error) core.Class {
		if errors.Is(err, errOverQuota) {
			return core.ClassUnavailable
		}
		return core.DefaultClassifier(err)
	}
	fmt.Println(classify(errOverQuota), classify(syscall.ECONNREFUSED), classify(errors.New("bad request")))
	// Output: unavailable unavailable transient
}

// A service that must not fill its disk refuses requests while too many events wait.
func ExampleBacklogFullError() {
	err := fmt.Errorf("place order: %w", &core.BacklogFullError{ // as Publish returns it
		Limit:   core.BacklogLimit{Rows: 1_000_000},
		Backlog: core.Backlog{Pending: 1_000_000, OldestAge: 26 * time.Hour},
	})
	if full, ok := errors.AsType[*core.BacklogFullError](err); ok {
		fmt.Println("503 Service Unavailable:", full.Backlog.Pending, "events wait for up to", full.Backlog.OldestAge)
	}
	fmt.Println(errors.Is(err, core.ErrBacklogFull))
	// Output:
	// 503 Service Unavailable: 1000000 events wait for up to 26h0m0s
	// true
}

// The context of RunInTx carries the transaction to code that has no parameter for it.
func ExampleTxFromContext() {
	repo := outboxtest.NewRepository()
	audit := func(ctx context.Context) bool {
		tx, ok := core.TxFromContext(ctx)
		return ok && tx.Tracked()
	}
	ctx := context.Background()
	_ = repo.Transactor().RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
		fmt.Println(audit(ctx))
		return nil
	})
	fmt.Println(audit(ctx))
	// Output:
	// true
	// false
}

// A library that takes a Transactor reports an unsuitable one when the program starts.
func ExampleCheckTransactor() {
	fmt.Println(core.CheckTransactor(outboxtest.NewRepository().Transactor()))
	fmt.Println(core.CheckTransactor(nil) != nil)
	// Output:
	// <nil>
	// true
}

// The default logger writes warnings and errors only.
func ExampleDefaultLogger() {
	ctx := context.Background()
	logger := core.DefaultLogger() // the logger that Config.Logger has by default
	fmt.Println(logger.Enabled(ctx, slog.LevelInfo), logger.Enabled(ctx, slog.LevelWarn))
	// Output: false true
}

// A tracer notes the text of an error as the table has it.
func ExampleErrorText() {
	fmt.Println(core.ErrorText(errors.New("dial kafka: password=hunter2 refused")))
	// Output: dial kafka: password=*** refused
}
