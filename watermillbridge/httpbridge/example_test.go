package httpbridge_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/watermillbridge/httpbridge"
)

// A relay posts the events of a topic to a partner, who checks the signature.
func ExampleNewPublisher() {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	partner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err == nil {
			err = httpbridge.Verify(r.Header, body, secret)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		md, err := httpbridge.Metadata(r.Header) // for coreinbox.Message.Headers
		fmt.Println(md["event_type"], string(body), err)
	}))
	defer partner.Close()

	publisher, err := httpbridge.NewPublisher(httpbridge.Config{
		Endpoints:      map[string]httpbridge.Endpoint{"orders": {URL: partner.URL, Secrets: []string{secret}}},
		AllowHTTP:      true, // the example's server has neither TLS nor a public address
		AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close(context.Background())

	err = publisher.Publish(context.Background(), core.Delivery{Event: core.Event{
		ID: "018f2d3e-4c5b-7000-8000-000000000001", Type: "order.placed", Topic: "orders",
		Payload: []byte(`{"total":42}`),
	}})
	fmt.Println(err)
	// Output:
	// order.placed {"total":42} <nil>
	// <nil>
}

// The handler of an effect posts to the endpoint of its subscriber.
func ExamplePublisher_Send() {
	publisher, err := httpbridge.NewPublisher(httpbridge.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	subscribers := map[string]httpbridge.Endpoint{"acme": {URL: "https://acme.invalid/hooks"}}
	handler := func(ctx context.Context, e command.Effect) (string, error) {
		return publisher.Send(ctx, subscribers[e.Headers["subscriber"]], httpbridge.Request{
			ID: e.IdempotencyKey(), Body: e.Payload, ContentType: e.ContentType,
		})
	}
	_, err = handler(context.Background(), command.Effect{
		Channel: "webhook", Key: "order/1", Headers: map[string]string{"subscriber": "acme"},
	})
	class, _ := core.ClassOf(err)
	fmt.Println(class)
	// Output: unavailable
}

func ExampleClassOfStatus() {
	fmt.Println(httpbridge.ClassOfStatus(http.StatusServiceUnavailable),
		httpbridge.ClassOfStatus(http.StatusUnprocessableEntity))
	// Output: unavailable permanent
}

// The vector of Standard Webhooks.
func ExampleSign() {
	signature, err := httpbridge.Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0),
		[]byte(`{"test": 2432232314}`), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	fmt.Println(signature, err)
	// Output: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= <nil>
}
