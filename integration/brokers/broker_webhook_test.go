package brokers_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge/httpbridge"
)

// webhookBroker is a receiver of webhooks in this process: a topic is a path. Requests that it has
// accepted outlive its server.
type webhookBroker struct {
	address string
	proxy   *suite.Proxy // in front of the server; may be nil
	server  *httptest.Server

	mu       sync.Mutex
	requests map[string][]heldMessage // by topic
	number   int
}

// refusedPayload is answered with 422.
const refusedPayload = `"refuse this"`

func openWebhook(t *testing.T) broker {
	t.Helper()
	return newWebhookBroker(t, 0)
}

func newWebhookBroker(t *testing.T, port int) *webhookBroker {
	t.Helper()
	w := &webhookBroker{address: fmt.Sprintf("127.0.0.1:%d", port), requests: map[string][]heldMessage{}}
	w.Up(t)
	return w
}

// startWebhook puts a proxy in front of the receiver, so that it can hang. Its port stays reserved
// while it is down.
func startWebhook(t *testing.T) (broker, suite.Server) {
	t.Helper()
	port, _ := fixture.ReservePorts(t)
	w := newWebhookBroker(t, port)
	w.proxy = suite.NewProxy(t, w.address)
	return w, w
}

// Up listens on the same port each time.
func (w *webhookBroker) Up(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", w.address)
	fixture.NoError(t, err)
	w.address = l.Addr().String()
	w.server = &httptest.Server{Listener: l, Config: &http.Server{Handler: w}}
	w.server.Start()
	t.Cleanup(w.server.Close)
}

// Kill implements suite.Server.
func (w *webhookBroker) Kill(t *testing.T) {
	t.Helper()
	w.server.CloseClientConnections()
	w.server.Close()
}

// Pause implements suite.Server.
func (w *webhookBroker) Pause(*testing.T) { w.proxy.Freeze() }

// Resume implements suite.Server.
func (w *webhookBroker) Resume(*testing.T) { w.proxy.Thaw() }

func (w *webhookBroker) ServeHTTP(answer http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil { // the connection broke
		return
	}
	md, err := httpbridge.Metadata(r.Header)
	topic := strings.TrimPrefix(r.URL.Path, "/")
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.requests[topic]; err != nil || !known || string(body) == refusedPayload {
		answer.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	w.number++
	id := fmt.Sprint("req-", w.number)
	msg := message.NewMessage(r.Header.Get("Message-Uuid"), body)
	msg.Metadata = md
	w.requests[topic] = append(w.requests[topic], heldMessage{msg, "202 " + id})
	answer.Header().Set("X-Request-Id", id)
	answer.WriteHeader(http.StatusAccepted)
}

func (w *webhookBroker) topic(*testing.T) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := "it-" + core.NewEventID()
	w.requests[name] = nil
	return name
}

func (w *webhookBroker) publisher(t *testing.T, timeout time.Duration) publisher {
	t.Helper()
	if w.proxy != nil {
		return w.at(t, w.proxy.Addr(), timeout)
	}
	return w.at(t, w.address, timeout)
}

func (w *webhookBroker) through(t *testing.T, timeout time.Duration) (publisher, suite.Link) {
	t.Helper()
	proxy := suite.NewProxy(t, w.address)
	return w.at(t, proxy.Addr(), timeout), proxy
}

func (w *webhookBroker) at(t *testing.T, address string, timeout time.Duration) publisher {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	endpoints := map[string]httpbridge.Endpoint{}
	for topic := range w.requests {
		endpoints[topic] = httpbridge.Endpoint{URL: "http://" + address + "/" + topic}
	}
	p, err := httpbridge.NewPublisher(httpbridge.Config{
		Endpoints: endpoints, Timeout: timeout, AllowHTTP: true,
		AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	fixture.NoError(t, err)
	topics.CloseAtEnd(t, p)
	return p
}

// refusal is a request that is answered with 422.
func (w *webhookBroker) refusal(t *testing.T) suite.Refusal {
	t.Helper()
	topic := w.topic(t)
	return suite.Refusal{Publisher: w.publisher(t, 0), Topic: topic, Payload: refusedPayload}
}

func (w *webhookBroker) held(_ *testing.T, topic string) []heldMessage {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.requests[topic])
}
