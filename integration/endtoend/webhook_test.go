package endtoend_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/watermillbridge/httpbridge"
)

const webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// webhookBroker is a server in this process: a topic is a path. A message has arrived when its
// request is answered.
type webhookBroker struct {
	endpoint map[string]httpbridge.Endpoint
}

func (w webhookBroker) publisher(t *testing.T) core.ReceiptPublisher {
	t.Helper()
	p, err := httpbridge.NewPublisher(httpbridge.Config{
		Endpoints: w.endpoint, AllowHTTP: true,
		AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	fixture.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (w webhookBroker) consume(t *testing.T, topic string) *consumer {
	t.Helper()
	arrived := make(chan *message.Message)
	ended, end := context.WithCancel(context.Background())
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = httpbridge.Verify(r.Header, body, webhookSecret)
		}
		md, merr := httpbridge.Metadata(r.Header)
		if err != nil || merr != nil {
			t.Errorf("request: %v, %v", err, merr)
			rw.WriteHeader(http.StatusBadRequest)
			return
		}
		msg := message.NewMessage(r.Header.Get("Message-Uuid"), body)
		msg.Metadata = md
		select {
		case arrived <- msg:
			<-msg.Acked()
		case <-ended.Done():
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(end) // ends the requests before Close waits for them
	w.endpoint[topic] = httpbridge.Endpoint{URL: server.URL + "/" + topic, Secrets: []string{webhookSecret}}
	return startConsumer(t, func(ctx context.Context) (<-chan *message.Message, error) {
		out := make(chan *message.Message)
		go func() {
			defer close(out)
			for {
				select {
				case msg := <-arrived:
					out <- msg
				case <-ctx.Done():
					return
				}
			}
		}()
		return out, nil
	})
}

func (w webhookBroker) left(*testing.T, string, *consumer) (int, error) { return 0, nil }
