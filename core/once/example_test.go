package once_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// A payment is captured once, however often the client sends the request. The key, the row of the
// payment and its event commit together.
func ExampleRunner_RunInTx() {
	repo := outboxtest.NewRepository() // in an application: tables of package sqlonce, and transactions of an adapter
	transactor := repo.Transactor()
	outbox, _ := core.New(core.Config{Repository: repo})
	runner, err := once.New(once.Config{Store: repo.OnceStore()})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()

	body := []byte(`{"amount":4200}`)
	key := once.Key{Scope: once.Scope("POST", "/payments"), Tenant: "acme", ID: "3f1c"}
	for range 2 {
		res, replayed, err := runner.RunInTx(ctx, transactor, key, once.FingerprintOf(body),
			func(ctx context.Context, tx core.Tx) (once.Result, error) {
				// ... tx.Exec(ctx, "INSERT INTO payment ...") ...
				_, err := outbox.Publish(ctx, tx, core.Event{Type: "payment.captured", AggregateID: "p-1"})
				return once.Result{Data: []byte("p-1")}, err
			})
		fmt.Printf("%s replayed=%t err=%v\n", res.Data, replayed, err)
	}
	fmt.Println("events:", len(repo.Rows()))

	_, _, err = runner.RunInTx(ctx, transactor, key, once.FingerprintOf([]byte(`{"amount":9900}`)),
		func(context.Context, core.Tx) (once.Result, error) { return once.Result{}, nil })
	fmt.Println("something else:", errors.Is(err, once.ErrFingerprintMismatch))
	// Output:
	// p-1 replayed=false err=<nil>
	// p-1 replayed=true err=<nil>
	// events: 1
	// something else: true
}

// The transaction form in a transaction that the caller opened.
func ExampleRunner_DoTx() {
	repo := outboxtest.NewRepository()
	runner, _ := once.New(once.Config{Store: repo.OnceStore()})
	ctx := context.Background()
	key := once.Key{Scope: "invoice", ID: "2026-11"}

	for range 2 {
		// RetryTx runs the transaction again if it failed only because of other transactions.
		err := sqltx.RetryTx(ctx, repo.Transactor(), func(ctx context.Context, tx core.Tx) error {
			_, replayed, err := runner.DoTx(ctx, tx, key, once.Fingerprint{},
				func(ctx context.Context) (once.Result, error) {
					_, err := tx.Exec(ctx, "INSERT INTO invoice (month) VALUES ('2026-11')")
					return once.Result{}, err
				})
			fmt.Println("replayed:", replayed)
			return err
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// replayed: false
	// replayed: true
}

// Work with effects elsewhere runs under a lease. A failure frees the key. Work in progress is not
// run a second time.
func ExampleRunner_Do() {
	runner, _ := once.New(once.Config{Store: outboxtest.NewOnceStore()})
	ctx := context.Background()
	key := once.Key{Scope: once.Scope("mail", "welcome"), ID: "ada@example.org"}
	send := func(fail error) (once.Result, bool, error) {
		return runner.Do(ctx, key, once.Fingerprint{}, func(ctx context.Context) (once.Result, error) {
			claim, _ := once.ClaimOf(ctx) // the fence grows with each attempt
			fmt.Println("sending, fence", claim.Fence)
			return once.Result{Data: []byte("message-id")}, fail
		})
	}
	_, _, err := send(errors.New("mail server is down"))
	fmt.Println(err)
	for range 2 {
		res, replayed, err := send(nil)
		fmt.Printf("%s replayed=%t err=%v\n", res.Data, replayed, err)
	}
	// Output:
	// sending, fence 1
	// mail server is down
	// sending, fence 2
	// message-id replayed=false err=<nil>
	// message-id replayed=true err=<nil>
}

// Another process holds the key. RetryAfter returns the rest of its lease.
func ExampleRetryAfter() {
	store := outboxtest.NewOnceStore(outboxtest.WithClock(func() time.Time { return time.Unix(0, 0) }))
	runner, _ := once.New(once.Config{Wait: -1, Store: store, Lease: 20 * time.Second})
	ctx := context.Background()
	key := once.Key{Scope: "report", ID: "2026"}

	_, _, _ = runner.Do(ctx, key, once.Fingerprint{}, func(ctx context.Context) (once.Result, error) {
		_, _, err := runner.Do(ctx, key, once.Fingerprint{}, nothing)
		fmt.Println(errors.Is(err, once.ErrInProgress), once.RetryAfter(err))
		return once.Result{}, nil
	})
	// Output: true 20s
}

func nothing(context.Context) (once.Result, error) { return once.Result{}, nil }

// Different keys have different texts, for any values of their parts.
func ExampleKey_String() {
	k := once.Key{Scope: once.Scope("inbox", "billing", "create invoice"), Tenant: "a|b", ID: "018f"}
	fmt.Println(k)
	fmt.Println(once.Key{Scope: "s"}.Validate())
	// Output:
	// inbox/billing/create invoice|a%7Cb|018f
	// once: invalid key: id is empty
}

func ExampleAttemptOf() {
	runner, err := once.New(once.Config{Store: outboxtest.NewOnceStore()})
	if err != nil {
		panic(err)
	}
	key := once.Key{Scope: "import", ID: "file-7"}
	for _, failure := range []error{errors.New("the server is down"), errors.New("line 3"), nil} {
		_, _, err := runner.Do(context.Background(), key, once.Fingerprint{},
			func(ctx context.Context) (once.Result, error) {
				attempt := once.AttemptOf(ctx)
				fmt.Println("attempt", attempt.Number)
				if failure != nil && failure.Error() == "the server is down" {
					attempt.Refund() // the failure is not the fault of the file
				}
				return once.Result{}, failure
			})
		fmt.Println(err)
	}
	// Output:
	// attempt 1
	// the server is down
	// attempt 1
	// line 3
	// attempt 2
	// <nil>
}

// A store refuses what its tables cannot hold, before it sends a statement.
func ExampleCheckLease() {
	for _, err := range []error{once.CheckLease(30 * time.Second), once.CheckLease(-time.Second), once.CheckTTL(0)} {
		fmt.Println(errors.Is(err, once.ErrInvalidRequest))
	}
	// Output:
	// false
	// true
	// true
}
