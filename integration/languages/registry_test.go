//go:build languages

package languages_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
)

type orderPaid struct {
	OrderID string
	Cents   int64
}

const orderPaidSchema = `{"type": "record", "name": "OrderPaid", "fields": [
	{"name": "order_id", "type": "string"}, {"name": "cents", "type": "long"}]}`

// avro encodes an orderPaid, as a library of Avro does.
func avro(v any) ([]byte, error) {
	paid := v.(orderPaid)
	b := append(binary.AppendVarint(nil, int64(len(paid.OrderID))), paid.OrderID...)
	return binary.AppendVarint(b, paid.Cents), nil
}

func protobuf(v any) ([]byte, error) { return proto.Marshal(v.(proto.Message)) }

// Confluent's deserializers read the codec's events: JSON, Avro, and Protobuf with the first message
// of a file and with another one.
func TestSchemaRegistry(t *testing.T) {
	t.Parallel()
	server := srfake.New()
	t.Cleanup(server.Close)
	registry, err := sr.NewClient(sr.URLs(server.URL()))
	fixture.NoError(t, err)
	for _, program := range []string{"consume_registry.py", "consume_registry.js", "ConsumeRegistry.java"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			topic := topics.Kafka(t, "", 1, nil)
			codec := newTestCodec(t, registry, topic+"-value")
			ob := outboxtest.NewOutbox(t, core.Config{Codec: codec})
			fixture.NoError(t, ob.Transactor.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
				_, err := ob.Publish(ctx, tx,
					core.Event{Type: "order.placed", Topic: topic, Data: OrderPlaced{"käse/8", 4200}},
					core.Event{Type: "order.paid", Topic: topic, Data: orderPaid{"käse/8", -1}},
					core.Event{Type: "order.named", Topic: topic, Data: wrapperspb.String("Käse")},
					core.Event{Type: "order.weighed", Topic: topic, Data: wrapperspb.Double(1.5)},
				)
				return err
			}))
			fixture.NoError(t, ob.Drain(t.Context()))
			p := topics.FranzPublisher(t, franzbridge.Config{})
			sent := ob.Publisher.Accepted()
			for _, d := range sent {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				err := p.Publish(ctx, d)
				cancel()
				fixture.NoError(t, err)
			}
			got := map[string]any{}
			for _, m := range run(t, program, topics.KafkaAddress(t), topic, topic+".group", strconv.Itoa(len(sent)),
				server.URL()) {
				got[m.Headers[core.HeaderEventType]] = m.Value
			}
			var want map[string]any
			fixture.NoError(t, json.Unmarshal([]byte(`{
				"order.placed": {"order_id": "käse/8", "cents": 4200},
				"order.paid": {"order_id": "käse/8", "cents": -1},
				"order.named": "Käse", "order.weighed": 1.5}`), &want))
			fixture.Check(t, reflect.DeepEqual(got, want), "read %v\nwant %v", got, want)
		})
	}
}

// newTestCodec adds Avro and Protobuf to the codec of the example.
func newTestCodec(t *testing.T, registry *sr.Client, subject string) *registryCodec {
	t.Helper()
	codec, err := newRegistryCodec(t.Context(), registry, subject)
	fixture.NoError(t, err)
	register := func(schema sr.Schema) int {
		registered, err := registry.CreateSchema(t.Context(), subject, schema)
		fixture.NoError(t, err)
		return registered.ID
	}
	codec.serde.Register(
		register(sr.Schema{Type: sr.TypeAvro, Schema: orderPaidSchema}),
		orderPaid{},
		sr.EncodeFn(avro),
	)
	// A file of our own with the messages of wrappers.proto. The registry of the test does not
	// translate: this is the form that Confluent's clients ask for.
	file := protodesc.ToFileDescriptorProto(wrapperspb.File_google_protobuf_wrappers_proto)
	file.Name, file.Package = new("shop.proto"), new("shop")
	text, err := proto.Marshal(file)
	fixture.NoError(t, err)
	wrappers := register(sr.Schema{Type: sr.TypeProtobuf, Schema: base64.StdEncoding.EncodeToString(text)})
	codec.serde.Register(wrappers, &wrapperspb.DoubleValue{}, sr.EncodeFn(protobuf), sr.Index(0))
	codec.serde.Register(wrappers, &wrapperspb.StringValue{}, sr.EncodeFn(protobuf), sr.Index(7))
	return codec
}
