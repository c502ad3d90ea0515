package once_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// A transaction decides to call a webhook, and the relay calls it after the commit. The other side
// gets a key that is the same for every attempt.
func Example_command() {
	dir, err := os.MkdirTemp("", "command")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	pool, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "example.db")+
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	ctx, cancel := context.WithCancel(context.Background())
	repo, err1 := sqloutbox.New(pool, sqloutbox.Config{})
	store, err2 := sqlcommand.New(pool, sqlcommand.Config{})
	if err := errors.Join(err1, err2, repo.Migrate(ctx), store.Migrate(ctx)); err != nil {
		panic(err)
	}

	called := make(chan string, 2)
	worker, err1 := command.NewWorker(command.WorkerConfig{
		Store: store,
		Handlers: map[string]command.Handler{"webhook": func(ctx context.Context, e command.Effect) (string, error) {
			called <- fmt.Sprintf("POST %s, Idempotency-Key of %d digits", e.Payload, len(e.IdempotencyKey()))
			return "wh_1", nil
		}},
	})
	router := core.NewRouter()
	worker.AddTo(router)
	outbox, err2 := core.New(core.Config{Repository: repo, Publisher: router, Relay: relay.Config{}})
	queue, err3 := command.NewQueue(command.QueueConfig{Store: store, Outbox: outbox})
	if err := errors.Join(err1, err2, err3); err != nil {
		panic(err)
	}
	var relay sync.WaitGroup
	relay.Go(func() { _ = outbox.Run(ctx) })
	relay.Go(func() { _ = worker.Run(ctx) }) // executes effects that no event wakes up

	for range 2 {
		err := sqltx.NewTransactor(pool, "").RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
			_, added, err := queue.Enqueue(ctx, tx,
				command.Effect{
					Channel: "webhook", Tenant: "acme", Key: "order-placed:7",
					Payload: []byte(`{"order":7}`),
				})
			fmt.Println("added:", added)
			return err
		})
		if err != nil {
			panic(err)
		}
	}
	fmt.Println(<-called)
	cancel()
	relay.Wait() // the relay records the executed effects before it ends
	rec, err := queue.Find(context.Background(), "acme", "webhook", "order-placed:7")
	fmt.Println(rec.Status, rec.ExternalRef, err)
	backlog, err := queue.Backlog(context.Background()) // to alert on: by channel, with the age of the oldest
	fmt.Println(len(backlog), err)
	// Output:
	// added: true
	// added: false
	// POST {"order":7}, Idempotency-Key of 64 digits
	// completed wh_1 <nil>
	// 0 <nil>
}
