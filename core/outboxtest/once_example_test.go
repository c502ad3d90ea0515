package outboxtest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// The test of an application has keys, events and transactions in one place. A rollback removes
// both the key and the event.
func ExampleRepository_OnceStore() {
	repo := outboxtest.NewRepository()
	store := repo.OnceStore()
	runner, _ := once.New(once.Config{Store: store, TTL: time.Hour})
	ctx := context.Background()
	key := once.Key{Scope: "test", ID: "1"}
	work := func(fail error) func(context.Context, core.Tx) (once.Result, error) {
		return func(context.Context, core.Tx) (once.Result, error) { return once.Result{}, fail }
	}

	_, _, err := runner.RunInTx(ctx, repo.Transactor(), key, once.Fingerprint{}, work(fmt.Errorf("out of stock")))
	fmt.Println(err, store.Keys())
	_, replayed, _ := runner.RunInTx(ctx, repo.Transactor(), key, once.Fingerprint{}, work(nil))
	fmt.Println(replayed, store.Keys())

	store.ShiftClock(2 * time.Hour) // after the time to live of the key
	deleted, _ := runner.Cleanup(ctx)
	fmt.Println(deleted, store.Keys())
	// Output:
	// out of stock 0
	// false 1
	// 1 0
}

// A key is held while its work runs. In memory, a test lets its lease end.
func ExampleNewOnceStore() {
	store, ctx := outboxtest.NewOnceStore(), context.Background()
	req := once.Request{
		Key: once.Key{Scope: "mail", ID: "welcome:ada"}, Owner: "a", Lease: time.Minute, TTL: time.Hour,
	}
	for range 2 {
		got, err := store.Acquire(ctx, req)
		fmt.Println(got.State, err)
		req.Owner = "b"
	}
	store.ShiftClock(2 * time.Minute)
	got, err := store.Acquire(ctx, req)
	fmt.Println(got.State, got.TakenOver, err)
	// Output:
	// fresh <nil>
	// in_progress <nil>
	// fresh true <nil>
}
