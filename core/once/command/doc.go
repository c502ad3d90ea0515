// Package command does what a command says once: in this database with a stored result, and in the
// world outside through a durable table.
//
// Commands are keyed by tenant, type and key. The first who comes runs the function; whoever comes
// later gets its result:
//
//	commands, err := command.New(command.Config{Keys: once.Config{Store: store}}) // store of package sqlonce
//	order, replayed, err := command.RunTx(ctx, commands, nil, command.Command{ // nil: the transaction in ctx
//		Type: "create-order", Tenant: tenant, Key: command.EventKey("QuoteAccepted", eventID), Input: quote,
//	}, func(ctx context.Context) (Order, error) { ... })
//
// Effects are calls to the world outside: a webhook, a mail, a message to a workflow engine. A
// Queue writes them in the transaction that decides on them, with an event of the outbox that wakes
// up a Worker after the commit. The relay retries, backs off and stops for outages; the row holds
// the state, the id that the other side gave, and who works on it:
//
//	queue, err := command.NewQueue(command.QueueConfig{Store: effects, Outbox: outbox})
//	rec, added, err := queue.Enqueue(ctx, tx, command.Effect{
//		Channel: "webhook", Tenant: tenant, Key: key, Payload: body,
//	})
//
//	worker, err := command.NewWorker(command.WorkerConfig{
//		Store: effects, Handlers: map[string]command.Handler{"webhook": post},
//	})
//	worker.AddTo(router) // the core.Router that the relay publishes to
//	go worker.Run(ctx)   // executes effects that no event wakes up
//
// Alert on Queue.Backlog: how many effects of each channel are pending and parked, and for how long
// the oldest has been due.
//
// An effect is executed at least once, and once when nothing fails: a process that dies between the
// call and its record leaves a lease that ends, and then the handler is called again with the same
// Effect.IdempotencyKey. Give that to the other side.
package command
