package languages_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// OrderPlaced is the data of an event.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
	Cents   int64  `json:"cents"`
}

const orderPlacedSchema = `{"type": "object", "properties": {
	"order_id": {"type": "string"}, "cents": {"type": "integer"}}, "required": ["order_id", "cents"]}`

// registryCodec encodes Event.Data in the wire format of a schema registry.
type registryCodec struct{ serde sr.Serde } // github.com/twmb/franz-go/pkg/sr

func (c *registryCodec) Encode(_ context.Context, data any) ([]byte, string, error) {
	b, err := c.serde.Encode(data)
	return b, "application/octet-stream", err
}

// newRegistryCodec asks the registry at the start, not in transactions. subject is TOPIC-value.
func newRegistryCodec(ctx context.Context, registry *sr.Client, subject string) (*registryCodec, error) {
	schema := sr.Schema{Type: sr.TypeJSON, Schema: orderPlacedSchema}
	registered, err := registry.CreateSchema(ctx, subject, schema)
	if err != nil {
		return nil, err
	}
	c := &registryCodec{}
	c.serde.Register(registered.ID, OrderPlaced{}, sr.EncodeFn(json.Marshal))
	return c, nil
}

// The payload begins with byte 0 and the schema's id.
func Example_schemaRegistry() {
	t := &testing.T{} // the t of the test
	ctx := context.Background()
	server := srfake.New() // a registry in memory
	defer server.Close()
	registry, err := sr.NewClient(sr.URLs(server.URL()))
	must(err)
	codec, err := newRegistryCodec(ctx, registry, "orders-value")
	must(err)

	ob := outboxtest.NewOutbox(t, core.Config{Codec: codec})
	must(ob.Transactor.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		_, err := ob.Publish(ctx, tx, core.Event{Type: "order.placed", Topic: "orders", Data: OrderPlaced{"7", 4200}})
		return err
	}))
	must(ob.Drain(ctx))
	d := ob.Publisher.Accepted()[0]
	fmt.Printf("%s %q\n", d.ContentType, d.Payload)
	// Output: application/octet-stream "\x00\x00\x00\x00\x01{\"order_id\":\"7\",\"cents\":4200}"
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
