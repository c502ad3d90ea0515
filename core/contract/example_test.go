package contract_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/contract"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// InvoiceSentV1 is the data of version 1, as old messages still have it.
type InvoiceSentV1 struct {
	Number string  `json:"number"`
	Amount float64 `json:"amount"`
}

// InvoiceSentV2 is the data of version 2.
type InvoiceSentV2 struct {
	Number string `json:"number" contract:"aggregate" doc:"the invoice's number"`
	Cents  int64  `json:"cents" doc:"the sum, with tax"`
	Email  string `json:"email,omitempty" contract:"pii" doc:"where it went"`
}

// InvoiceSent is the declaration that producers and consumers share.
var InvoiceSent = contract.Must(contract.Define(contract.Spec[InvoiceSentV2]{
	Type: "invoice.sent", Version: 2, Owner: "team billing", Topic: "billing", AggregateType: "invoice",
	Description: "An invoice has been sent to the customer.",
	Example:     InvoiceSentV2{Number: "2026-17", Cents: 4200, Email: "ada@example.com"},
	Older: []contract.Older{
		contract.From(1, InvoiceSentV1{Number: "2026-17", Amount: 42}, func(v1 InvoiceSentV1) (InvoiceSentV2, error) {
			return InvoiceSentV2{Number: v1.Number, Cents: int64(v1.Amount*100 + 0.5)}, nil
		}),
	},
}))

// InvoicePaidV1 is the data of another event of the topic.
type InvoicePaidV1 struct {
	Number string `json:"number" contract:"aggregate"`
}

// InvoicePaid is another event of the topic.
var InvoicePaid = contract.Must(contract.Define(contract.Spec[InvoicePaidV1]{
	Type: "invoice.paid", Owner: "team billing", Topic: "billing", AggregateType: "invoice",
	Description: "The customer has paid an invoice.",
	Example:     InvoicePaidV1{Number: "2026-17"},
}))

// The producer publishes the current version. The consumer reads whatever version arrives.
func Example() {
	// In a transaction: outbox.Publish(ctx, tx, event)
	event := InvoiceSent.Event(InvoiceSentV2{Number: "2026-18", Cents: 9900})
	fmt.Println(event.Type, event.SchemaVersion, event.Topic, event.AggregateType, event.AggregateID)

	data, err := InvoiceSent.Decode(contract.Message{
		Headers: map[string]string{"event_type": "invoice.sent", "schema_version": "1"},
		Payload: []byte(`{"number":"2026-03","amount":12.5}`),
	})
	fmt.Println(data.Number, data.Cents, err)
	// Output:
	// invoice.sent 2 billing invoice 2026-18
	// 2026-03 1250 <nil>
}

// A consumer of a topic says what it does with each type. A newer version waits for the deployment,
// and an unknown type is dead, unless the policies say otherwise.
func ExampleNewHandlers() {
	handlers, err := contract.NewHandlers(contract.HandlersConfig{},
		InvoiceSent.Handle(func(_ context.Context, m contract.Message, data InvoiceSentV2) error {
			fmt.Println("sent", data.Number, data.Cents, "event", m.Headers[core.HeaderEventID])
			return nil
		}),
		InvoicePaid.Ignore(),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	// In a handler of Watermill: handlers.Handle(msg.Context(), contract.Message{Headers:
	// msg.Metadata, Payload: msg.Payload}), and likewise in one of the inbox.
	for _, headers := range []map[string]string{
		{"event_id": "e-1", "event_type": "invoice.sent", "schema_version": "2"},
		{"event_id": "e-2", "event_type": "invoice.sent", "schema_version": "3"},
		{"event_id": "e-3", "event_type": "invoice.paid", "schema_version": "1"},
		{"event_id": "e-4", "event_type": "invoice.lost", "schema_version": "1"},
	} {
		err := handlers.Handle(context.Background(), contract.Message{
			Headers: headers, Payload: []byte(`{"number":"2026-18","cents":9900}`),
		})
		class, _ := core.ClassOf(err)
		switch {
		case errors.Is(err, contract.ErrNewerVersion):
			fmt.Println(headers["event_id"], "waits:", class)
		case errors.Is(err, contract.ErrUnknownType):
			fmt.Println(headers["event_id"], "is dead:", class)
		case err != nil:
			fmt.Println(err)
		}
	}
	// Output:
	// sent 2026-18 9900 event e-1
	// e-2 waits: key_unavailable
	// e-4 is dead: permanent
}

// A program that handles events in its own process has no broker between.
func ExampleMessageOf() {
	ctx := context.Background()
	router := core.NewRouter()
	router.HandleFunc("billing", func(_ context.Context, d core.Delivery) error {
		data, err := InvoiceSent.Decode(contract.MessageOf(d))
		fmt.Println("received", data.Number, data.Cents)
		return err
	})
	repo := outboxtest.NewRepository()
	outbox, err := core.New(core.Config{Repository: repo, Publisher: router, Relay: relay.Config{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = repo.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		_, err := outbox.Publish(ctx, tx, InvoiceSent.Event(InvoiceSentV2{Number: "2026-18", Cents: 9900}))
		return err
	})
	fmt.Println(err, outbox.Drain(ctx))

	// An event without its key is refused before anything is written.
	err = repo.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		_, err := outbox.Publish(ctx, tx, InvoiceSent.Event(InvoiceSentV2{Cents: 9900}))
		return err
	})
	fmt.Println(errors.Is(err, core.ErrInvalidEvent))
	// Output:
	// received 2026-18 9900
	// <nil> <nil>
	// true
}

// The events of a service stand in a catalog, of which module contractoutbox writes documents.
func ExampleNewCatalog() {
	catalog, err := contract.NewCatalog(InvoiceSent, InvoicePaid)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range catalog.Events() {
		fmt.Printf("%s version %d of %s\n", e.Type, e.Version, e.Owner)
		for _, f := range contract.Fields(e.Versions[len(e.Versions)-1].Type) {
			fmt.Printf("  %s optional=%t pii=%t\n", f.Name, f.Optional, f.PII)
		}
	}
	// Output:
	// invoice.paid version 1 of team billing
	//   number optional=false pii=false
	// invoice.sent version 2 of team billing
	//   number optional=false pii=false
	//   cents optional=false pii=false
	//   email optional=true pii=true
}

// A wrong declaration is refused at once. Must ends the program with the same text.
func ExampleDefine() {
	_, err := contract.Define(contract.Spec[InvoiceSentV2]{
		Type: "invoice.sent", Version: 3, Description: "An invoice has been sent to the customer.",
		Example: InvoiceSentV2{Number: "2026-17", Cents: 4200},
		Older: []contract.Older{
			contract.From(1, InvoiceSentV1{Number: "2026-17", Amount: 42},
				func(InvoiceSentV1) (InvoiceSentV2, error) { return InvoiceSentV2{}, nil }),
		},
	})
	fmt.Println(err)
	// Output:
	// contract: invalid declaration: event type "invoice.sent": Owner is empty
	// Version is 3, and the last of Older is 1: versions ascend without a gap
}
