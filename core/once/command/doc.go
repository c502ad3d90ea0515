// Package command runs commands once in this database, with a stored result, and executes effects
// in the outside world from a durable table.
//
// A command has a tenant, a type and a key. The first call runs the function, and later calls get
// its result:
//
//	commands, err := command.New(once.Config{Store: store}) // store of package sqlonce
//	order, replayed, err := command.RunTx(ctx, commands, nil, command.Command{ // nil: the transaction in ctx
//		Type: "create-order", Tenant: tenant, Key: command.EventKey("QuoteAccepted", eventID), Input: quote,
//	}, func(ctx context.Context) (Order, error) { ... })
//
// Effects are calls to the outside world: a webhook, a mail, a message to a workflow engine. A
// Queue writes an effect in the transaction that decides on it, with an event of the outbox that
// wakes a Worker after the commit. The relay retries, backs off and stops for outages. The row of
// the effect holds its status, its lease, and the id that the other side gave it:
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
// Alert on [Queue.Backlog]: it counts the pending and dead effects of each channel, with how long
// the oldest has been due. A person decides about a dead effect: [Queue.Redrive] has it executed
// after all, and [Queue.Discard] ends it.
//
// An effect is executed at least once, and once when nothing fails. If a process dies between the
// call and its record, the lease ends, and the handler is called again with the same
// [Effect.IdempotencyKey]. Give that key to the other side.
package command
