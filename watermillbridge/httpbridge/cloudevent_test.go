package httpbridge_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	wmhttp "github.com/ThreeDotsLabs/watermill-http/v2/pkg/http"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/watermillbridge/httpbridge"
)

// A webhook receives the event in both modes, together with the trace.
func TestWebhookGetsCloudEvents(t *testing.T) {
	t.Parallel()
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b9c7c989f97918e1-01"
	var got cloudevents.Event
	var header http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers, err := cloudevents.Header(r.Header)
		if err == nil {
			var body []byte
			if body, err = io.ReadAll(r.Body); err == nil {
				got, err = cloudevents.HTTP.Decode(cloudevents.Message{Headers: headers, Body: body})
			}
		}
		if header = r.Header; err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}))
	t.Cleanup(server.Close)
	for _, mode := range []cloudevents.Mode{cloudevents.ModeBinary, cloudevents.ModeStructured} {
		mapper := &cloudevents.Mapper{Source: "/orders", Binding: cloudevents.HTTP, Mode: mode}
		d := core.Delivery{Event: core.Event{
			ID: "018f2d3e-4c5b-7000-8000-000000000001", Type: "order.placed", AggregateID: "Größe 1",
			ContentType: "application/json", Payload: []byte(`{"total":42}`),
			Headers: map[string]string{"traceparent": trace},
		}}
		ce, err := mapper.Message(d)
		if err != nil {
			t.Fatal(err)
		}
		msg := message.NewMessage(d.ID, ce.Body) // as watermillbridge makes it
		msg.Metadata = ce.Headers
		msg.Metadata.Set("traceparent", trace)
		pub, err := wmhttp.NewPublisher(wmhttp.PublisherConfig{MarshalMessageFunc: httpbridge.MarshalCloudEvent}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := pub.Publish(server.URL, msg); err != nil {
			t.Fatal(err)
		}
		if got.Subject != "Größe 1" || got.DataContentType != "application/json" ||
			string(got.Data) != `{"total":42}` || got.Extensions["traceparent"] != trace {
			t.Errorf("mode %d: %+v", mode, got)
		}
		if header.Get("Traceparent") != trace || header.Get("Message-Uuid") != got.ID {
			t.Errorf("mode %d: headers %q", mode, header)
		}
	}
}

func ExampleMarshalCloudEvent() {
	msg := message.NewMessage("1", []byte(`{"total":42}`))
	msg.Metadata = message.Metadata{"ce-id": "1", "content-type": "application/json"} // by watermillbridge
	req, err := httpbridge.MarshalCloudEvent("https://webhook.example", msg)
	fmt.Println(req.Header.Get("Ce-Id"), req.Header.Get("Content-Type"), err)
	// Output: 1 application/json <nil>
}
