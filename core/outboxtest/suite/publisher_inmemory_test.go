package suite_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
)

// httpBroker keeps messages in memory. Its publishers reach it over HTTP.
type httpBroker struct {
	t       *testing.T
	server  *http.Server
	address string
	wrong   string // a mistake, see publisherMistakes

	mu    sync.Mutex
	held  map[string][]suite.Held
	later []sent
}

// sent is the body of a request. Metadata of a consumer would be in headers.
type sent struct {
	Delivery core.Delivery
	Payload  []byte
}

const refusedByBroker = "refuse this"

func openHTTPBroker(t *testing.T, wrong string) *httpBroker {
	t.Helper()
	b := &httpBroker{t: t, wrong: wrong, held: map[string][]suite.Held{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.address, b.server = l.Addr().String(), &http.Server{Handler: b}
	go func() { _ = b.server.Serve(l) }()
	t.Cleanup(func() { _ = b.server.Close() })
	return b
}

func (b *httpBroker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var s sent
	if err != nil || json.Unmarshal(body, &s) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	d := s.Delivery
	d.Payload = s.Payload
	held, known := b.held[d.Topic]
	switch {
	case !known:
		w.WriteHeader(http.StatusNotFound)
		return
	case string(d.Payload) == refusedByBroker:
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	case b.wrong == "every second message is lost" && (len(held)+len(b.later))%2 == 1:
		b.later = append(b.later, s)
		return
	case b.wrong == "a value is cut":
		for name, v := range d.Headers {
			d.Headers[name] = strings.TrimSpace(v)
		}
	case b.wrong == "bytes become text":
		d.Payload = []byte(strings.ToValidUTF8(string(d.Payload), "\ufffd"))
	case b.wrong == "a key is turned round":
		b.held[d.Topic] = slices.Insert(held, 0, suite.Held{Delivery: d})
		return
	case b.wrong == "a message is stored twice":
		held = append(held, suite.Held{Delivery: d})
	}
	b.held[d.Topic] = append(held, suite.Held{Delivery: d})
}

func (b *httpBroker) broker() suite.Broker {
	return suite.Broker{
		Topic: func(*testing.T) string {
			b.mu.Lock()
			defer b.mu.Unlock()
			topic := core.NewEventID()
			b.held[topic] = nil
			return topic
		},
		Publisher: func(t *testing.T, _ time.Duration) core.Publisher { t.Helper(); return b.publisher(b.address) },
		Through: func(t *testing.T, _ time.Duration) (core.Publisher, suite.Link) {
			t.Helper()
			proxy := suite.NewProxy(t, b.address)
			return b.publisher(proxy.Addr()), proxy
		},
		Held: func(_ *testing.T, topic string) []suite.Held {
			b.mu.Lock()
			defer b.mu.Unlock()
			return slices.Clone(b.held[topic])
		},
		Again: func(_ *testing.T, topic string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.held[topic] = nil
		},
		Refusal: func(t *testing.T) suite.Refusal {
			t.Helper()
			k := b.broker()
			return suite.Refusal{Publisher: k.Publisher(t, 0), Topic: k.Topic(t), Payload: refusedByBroker}
		},
	}
}

// httpPublisher is a correct publisher, except for its mistake.
type httpPublisher struct {
	url, wrong string
	client     *http.Client

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
}

func (b *httpBroker) publisher(address string) *httpPublisher {
	p := &httpPublisher{url: "http://" + address, wrong: b.wrong, client: &http.Client{Transport: &http.Transport{}}}
	b.t.Cleanup(p.client.CloseIdleConnections)
	return p
}

func (p *httpPublisher) CheckSize(e core.Event) error {
	if len(e.Payload) > 1<<20 && p.wrong != "no limit is known" {
		return errors.New("too large")
	}
	return nil
}

func (p *httpPublisher) Publish(ctx context.Context, d core.Delivery) error {
	p.mu.Lock()
	if p.closed && p.wrong != "a closed publisher goes on" {
		p.mu.Unlock()
		return core.Unavailable(errors.New("closed"))
	}
	p.calls.Add(1)
	p.mu.Unlock()
	defer p.calls.Done()
	if p.wrong == "it does not wait for the answer" {
		go func() { _ = p.send(context.WithoutCancel(ctx), d) }()
		return nil
	}
	err := p.send(ctx, d)
	if p.wrong == "an outage is the event's fault" && err != nil {
		return core.Permanent(err)
	}
	return err
}

func (p *httpPublisher) send(ctx context.Context, d core.Delivery) error {
	s := sent{d, d.Payload}
	s.Delivery.Payload = nil
	body, err := json.Marshal(s)
	if err != nil {
		return core.Permanent(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, strings.NewReader(string(body)))
	if err != nil {
		return core.Permanent(err)
	}
	answer, err := p.client.Do(req)
	if err != nil {
		return core.Unavailable(err)
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusNotFound:
		if p.wrong == "a missing topic is the event's fault" {
			return core.Permanent(errors.New("no such topic"))
		}
		return core.Unavailable(errors.New("no such topic"))
	}
	return core.Permanent(errors.New("refused"))
}

func (p *httpPublisher) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	done := make(chan struct{})
	go func() { p.calls.Wait(); close(done) }()
	if p.wrong == "close has no limit" {
		<-done
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// publisherMistakes has a case that must fail for each mistake.
var publisherMistakes = map[string]string{
	"every second message is lost":         "order_of_keys",
	"a value is cut":                       "unusual_events",
	"bytes become text":                    "unusual_events",
	"a key is turned round":                "order_of_keys",
	"a message is stored twice":            "order_of_keys",
	"no limit is known":                    "large_payloads",
	"a closed publisher goes on":           "close",
	"it does not wait for the answer":      "slow_answers",
	"an outage is the event's fault":       "connections_break",
	"a missing topic is the event's fault": "outcomes",
	"close has no limit":                   "close",
}

// TestPublisherInMemory is the suite on a correct publisher, or on one with the mistake that the
// environment names.
func TestPublisherInMemory(t *testing.T) {
	wrong := os.Getenv(mistakeVariable)
	suite.TestPublisher(t, suite.PublisherHarness{
		Open: func(t *testing.T) suite.Broker { t.Helper(); return openHTTPBroker(t, wrong).broker() },

		LargestPayload: 1 << 20, NoTopic: core.ClassUnavailable,
	})
}

func TestPublisherMistakesAreNoticed(t *testing.T) {
	t.Parallel()
	for wrong, scenario := range publisherMistakes {
		t.Run(wrong, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.short",
				"-test.run=^TestPublisherInMemory$/^"+scenario+"$")
			cmd.Env = append(os.Environ(), mistakeVariable+"="+wrong)
			out, err := cmd.CombinedOutput()
			if !strings.Contains(string(out), "--- FAIL: TestPublisherInMemory/"+scenario) {
				t.Errorf("the case passes (%v):\n%s", err, out)
			}
		})
	}
}
