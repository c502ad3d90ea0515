// Package inbox makes a consumer idempotent without a framework: the effect of a message in the
// database happens once, however often the broker delivers it. It works with any client: franz-go,
// nats.go, amqp091-go, SQS. For a Router of Watermill there is module inbox, which is built on it.
//
//	store, err := sqlinbox.New(db, sqlinbox.Config{}) // and store.Migrate(ctx), or sqlinbox.Migrations
//	in, err := inbox.New(inbox.Config{
//		Consumer: "billing", Handler: "invoice", Transactor: sqltx.NewTransactor(db, ""), Store: store,
//	})
//
//	res := in.Process(ctx, inbox.Message{Topic: topic, Headers: headers, Payload: payload},
//		func(ctx context.Context, tx core.Tx, msg inbox.Message) error { ... })
//	switch res.Action {
//	case inbox.Ack: // processed, now or before: acknowledge
//	case inbox.Retry: // not processed, res.Err says why: deliver again after res.After
//	case inbox.Dead: // given up: put the payload into a dead-letter queue, and acknowledge
//	}
//
// Process opens a transaction and writes the event's id into a table. If the id is there already,
// the handler is not run. Otherwise the handler runs with the transaction, and the id and the
// handler's changes commit together. A crash, an error or a panic before the commit rolls both
// back. After the commit the message only has to be acknowledged.
//
// # Failures
//
// An error of the handler spends an attempt. The table counts attempts, so a restart does not reset
// them. An outage of the database or of the network spends none, nor does an error that
// core.Unavailable or [Config.Classifier] marks as an outage. The event is given up when
// [Config.MaxAttempts] are spent and its first failure is [Config.MinAge] ago, or at once with
// core.Permanent. The event is then dead: ListDead shows it, and Redrive lets it be processed when
// it is delivered again. Release redrives it and delivers its message from a poison queue. Discard
// ends it unprocessed.
//
// # No promise
//
// Effects outside the transaction (mail, HTTP calls, another database) happen as often as the
// handler runs: write an effect of package command, or an event of the outbox, in the transaction
// instead. Messages keep the broker's order, except with [Config.OnlyNewer]. Once an id is deleted,
// its event is new again: see [Config.Retention].
//
// # Identity
//
// An event is remembered for a consumer, a handler, a tenant and an event id, compared byte by
// byte. Consumer and handler are names that you choose and keep: under a new name everything is
// processed again. The event id comes from the headers or from a CloudEvent, and never from
// the data: see [MessageID].
//
// AtLeastOnce does the same without a transaction, by a lease in Redis or another store of package
// once.
package inbox
