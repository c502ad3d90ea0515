package httpbridge_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/watermillbridge/httpbridge"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

// newPublisher makes a publisher to servers on loopback.
func newPublisher(t *testing.T, cfg httpbridge.Config) *httpbridge.Publisher {
	t.Helper()
	cfg.AllowHTTP = true
	cfg.AllowAddresses = append(cfg.AllowAddresses, loopback...)
	p, err := httpbridge.NewPublisher(cfg)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		noError(t, p.Close(ctx))
	})
	return p
}

// to is a Config with one topic, "orders".
func to(url string) httpbridge.Config {
	return httpbridge.Config{
		Endpoints: map[string]httpbridge.Endpoint{"orders": {URL: url, Secrets: []string{vectorSecret}}},
		Timeout:   time.Minute,
	}
}

func delivery(t testing.TB) core.Delivery {
	t.Helper()
	e := core.Event{
		ID: core.NewEventID(), Type: "order.placed", AggregateType: "order", AggregateID: "Größe 1",
		AggregateVersion: 3, TenantID: "acme", SchemaVersion: 2, Topic: "orders", Key: "order/1",
		ContentType: "application/json",
		OccurredAt:  time.Now().UTC().Truncate(time.Microsecond), Payload: []byte(`{"total":7}`),
	}
	row, err := core.NewRowID(e.ID, e.Topic)
	must(t, err)
	replay, err := core.FreshRowID(e.ID)
	must(t, err)
	return core.Delivery{Event: e, RowID: row, KeySeq: 1042, Attempt: 2, ReplayOf: replay}
}

// received is what a server got.
type received struct {
	header http.Header
	body   []byte
}

func keep(t *testing.T, into *[]received, mu *sync.Mutex) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost {
			t.Errorf("%s: %v", r.Method, err)
		}
		mu.Lock()
		*into = append(*into, received{r.Header, body})
		mu.Unlock()
		w.Header().Set("X-Request-Id", "req-1")
		w.WriteHeader(http.StatusAccepted)
	}
}

// The receiver gets body, headers and fields byte for byte, signed, with a key for its own
// deduplication.
func TestWhatArrives(t *testing.T) {
	t.Parallel()
	var got []received
	var mu sync.Mutex
	server := serve(t, keep(t, &got, &mu))
	p := newPublisher(t, to(server.URL+"/hooks?token=t0ken"))
	d := delivery(t)
	d.Payload = []byte("\x00\xff line\r\n «ö» \U0001F4E6")
	d.Headers = map[string]string{
		"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"X_under":     "score", "note": "grün \U0001F4E6", "blank": " around ", "CaSe": "kept", "content-length": "7",
		"Content-Type": "of the user", "webhook-signature": "v1,forged", "Idempotency-Key": "forged", "quote": `"<&>\`,
	}
	receipt, err := p.PublishWithReceipt(t.Context(), d)
	if err != nil || receipt != "202 req-1" {
		t.Fatalf("receipt %q, %v", receipt, err)
	}
	h := got[0].header
	if string(got[0].body) != string(d.Payload) {
		t.Errorf("body %q", got[0].body)
	}
	md, err := httpbridge.Metadata(h)
	if err != nil || !maps.Equal(md, d.Metadata()) {
		t.Errorf("metadata %q, %v\nwant %q", md, err, d.Metadata())
	}
	noError(t, httpbridge.Verify(h, got[0].body, vectorSecret))
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Idempotency-Key": d.RowID.String(), "Webhook-Id": d.ID,
		"Message-Uuid": d.ID, "Traceparent": d.Headers["traceparent"], "Case": "kept", "X_under": "score",
		"User-Agent": "ormoutbox", "Quote": `"<&>\`,
		"Note": "", "Blank": "", "Partition_key": "", // HTTP would change them: they are in the metadata
	} {
		if v := h.Values(name); strings.Join(v, "|") != want {
			t.Errorf("header %s is %q, want %q", name, v, want)
		}
	}

	// A replay has the identity of the event and a key of its own.
	again := d
	again.RowID = d.ReplayOf
	must(t, p.Publish(t.Context(), again))
	if h := got[1].header; h.Get("Webhook-Id") != d.ID || h.Get("Idempotency-Key") != d.ReplayOf.String() {
		t.Errorf("a replay: %v", h)
	}
}

// An event that came from Watermill has metadata that no header of an event can hold.
func TestMetadataOfWatermill(t *testing.T) {
	t.Parallel()
	var got []received
	var mu sync.Mutex
	p := newPublisher(t, to(serve(t, keep(t, &got, &mu)).URL))
	d := delivery(t)
	d.Headers = map[string]string{
		core.HeaderMessage: `{"uuid":"short-1","metadata":{"a blank":"line\none","event_type":"forged"}}`,
	}
	must(t, p.Publish(t.Context(), d))
	md, err := httpbridge.Metadata(got[0].header)
	if err != nil || md["a blank"] != "line\none" || md["event_type"] != "order.placed" ||
		md[core.HeaderMessage] != "" || got[0].header.Get("Message-Uuid") != "short-1" {
		t.Errorf("%q, %v, %v", md, err, got[0].header)
	}
	if d.Headers[core.HeaderMessage] = "of another program"; p.Publish(t.Context(), d) != nil {
		t.Fatal("it is not sent")
	}
	if md, err = httpbridge.Metadata(got[1].header); err != nil || md[core.HeaderMessage] != "of another program" {
		t.Errorf("%q, %v", md, err)
	}
}

func TestWebhookGetsCloudEvents(t *testing.T) {
	t.Parallel()
	var got []received
	var mu sync.Mutex
	server := serve(t, keep(t, &got, &mu))
	for i, mode := range []cloudevents.Mode{cloudevents.ModeBinary, cloudevents.ModeStructured} {
		cfg := to(server.URL)
		cfg.CloudEvents = &cloudevents.Mapper{Source: "/orders", Mode: mode}
		p := newPublisher(t, cfg)
		d := delivery(t)
		d.Headers = map[string]string{
			"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b9c7c989f97918e1-01", "ce-id": "x",
		}
		must(t, p.Publish(t.Context(), d))
		headers, err := cloudevents.Header(got[i].header)
		must(t, err)
		md, err := httpbridge.Metadata(got[i].header) // they are signed
		if err != nil || md[core.HeaderEventID] != d.ID || md[core.HeaderKeySeq] != "1042" {
			t.Errorf("mode %d: metadata %q, %v", mode, md, err)
		}
		for from, headers := range map[string]map[string]string{"headers": headers, "metadata": md} {
			e, err := cloudevents.HTTP.Decode(cloudevents.Message{Headers: headers, Body: got[i].body})
			if err != nil || e.ID != d.ID || e.Subject != "Größe 1" || e.DataContentType != "application/json" ||
				string(e.Data) != `{"total":7}` || e.Extensions["traceparent"] != d.Headers["traceparent"] {
				t.Errorf("mode %d: by %s: %+v, %v", mode, from, e, err)
			}
		}
		if err := httpbridge.Verify(got[i].header, got[i].body, vectorSecret); err != nil {
			t.Errorf("mode %d: %v", mode, err)
		}
	}
	cfg := to(server.URL)
	cfg.CloudEvents = &cloudevents.Mapper{Source: "/orders"}
	if err := newPublisher(t, cfg).CheckSize(core.Event{Type: "", ID: "1"}); !errors.Is(err, cloudevents.ErrInvalid) {
		t.Errorf("an event without a type: %v", err)
	}
}

// Another sender signs its webhook-id and no other header.
func TestMetadataOfOthers(t *testing.T) {
	t.Parallel()
	md, err := httpbridge.Metadata(http.Header{"Webhook-Id": {"1"}, "Ce-Type": {"a"}, "Event_type": {"b"}})
	if err != nil || !maps.Equal(md, map[string]string{"event_id": "1"}) {
		t.Errorf("%q, %v", md, err)
	}
	for name, h := range map[string]http.Header{
		"damaged":        {"Message-Metadata": {"{"}},
		"nothing":        {"Ce-Id": {"1"}},
		"twice":          {"Message-Metadata": {`{"event_id":"1"}`, `{"event_id":"2"}`}},
		"an id twice":    {"Webhook-Id": {"1", "2"}},
		"another id":     {"Webhook-Id": {"1"}, "Message-Metadata": {`{"event_id":"2"}`}},
		"no id of event": {"Webhook-Id": {"1"}, "Message-Metadata": {`{"tenant_id":"a"}`}},
	} {
		if md, err := httpbridge.Metadata(h); err == nil {
			t.Errorf("%s: %q", name, md)
		}
	}
}

// The check when an event is recorded knows the size to the byte.
func TestTheSizeLimitIsThatOfTheRequest(t *testing.T) {
	t.Parallel()
	var body, metadata int
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body, metadata = len(b), len(r.Header.Get("Message-Metadata"))
	})
	largest := func(ok func(int) bool) int {
		n := 0
		for step := 1 << 17; step > 0; step /= 2 {
			if ok(n + step) {
				n += step
			}
		}
		return n
	}
	for _, mapper := range []*cloudevents.Mapper{
		nil, {Source: "/orders"}, {Source: "/orders", Mode: cloudevents.ModeStructured},
	} {
		cfg := to(server.URL)
		cfg.CloudEvents, cfg.MaxBody, cfg.MaxMetadata = mapper, 100_000, 5000
		p := newPublisher(t, cfg)
		d := delivery(t)
		d.Attempt, d.KeySeq, d.ReplayOf, d.RowID = 1<<31-1, 1<<63-1, core.RowID{1}, core.RowID{1}
		n := largest(func(n int) bool { d.Payload = make([]byte, n); return p.CheckSize(d.Event) == nil })
		if d.Payload = make([]byte, n); p.Publish(t.Context(), d) != nil || body > 100_000 || body < 99_990 {
			t.Errorf("%+v: the largest payload is %d: a body of %d", mapper, n, body)
		}
		d.Payload = make([]byte, n+1)
		if err := p.CheckSize(d.Event); err == nil || !strings.Contains(err.Error(), "Config.MaxBody") {
			t.Errorf("%+v: %v", mapper, err)
		}
		d.Payload = []byte("{}")
		n = largest(func(n int) bool {
			d.Headers = map[string]string{"note": strings.Repeat("ö", n)}
			return p.CheckSize(d.Event) == nil
		})
		d.Headers = map[string]string{"note": strings.Repeat("ö", n)}
		if p.Publish(t.Context(), d) != nil || metadata > 5000 || metadata < 4980 {
			t.Errorf("%+v: the longest header has %d: metadata of %d", mapper, n, metadata)
		}
		d.Headers = map[string]string{"note": strings.Repeat("ö", n+1)}
		if err := p.CheckSize(d.Event); err == nil || !strings.Contains(err.Error(), "Config.MaxMetadata") {
			t.Errorf("%+v: %v", mapper, err)
		}
	}
}

// A relay claims the topics that have an endpoint.
func TestTopics(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, httpbridge.Config{Endpoints: map[string]httpbridge.Endpoint{
		"b": {URL: "https://b.example"}, "a": {URL: "https://a.example"},
	}})
	if got := p.Topics(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("topics %q", got)
	}
	d := delivery(t)
	d.Topic = "c"
	err := p.Publish(t.Context(), d)
	if class, _ := core.ClassOf(err); !errors.Is(err, httpbridge.ErrNoEndpoint) || class != core.ClassUnavailable {
		t.Errorf("a topic without an endpoint: %v, %v", err, class)
	}
	if got := newPublisher(t, httpbridge.Config{}).Topics(); got == nil || len(got) != 0 {
		t.Errorf("without endpoints: %q", got)
	}

	var asked string
	server := serve(t, func(http.ResponseWriter, *http.Request) {})
	boom := errors.New("boom")
	p = newPublisher(t, httpbridge.Config{Endpoint: func(topic string) (httpbridge.Endpoint, error) {
		switch asked = topic; topic {
		case "broken":
			return httpbridge.Endpoint{}, boom
		case "invalid":
			return httpbridge.Endpoint{URL: "ftp://a.example"}, nil
		}
		return httpbridge.Endpoint{URL: server.URL}, nil
	}})
	if p.Topics() != nil {
		t.Error("a function serves every topic")
	}
	if err := p.Publish(t.Context(), d); err != nil || asked != "c" {
		t.Errorf("%v, asked for %q", err, asked)
	}
	d.Topic = "broken"
	err = p.Publish(t.Context(), d)
	if _, marked := core.ClassOf(err); !errors.Is(err, boom) || marked {
		t.Errorf("err = %v, marked %v", err, marked)
	}
	d.Topic = "invalid"
	err = p.Publish(t.Context(), d)
	if class, _ := core.ClassOf(err); !errors.Is(err, httpbridge.ErrEndpoint) || class != core.ClassUnavailable {
		t.Errorf("err = %v, class %v", err, class)
	}
}

// An effect is sent to an endpoint that its handler chooses.
func TestSend(t *testing.T) {
	t.Parallel()
	var got []received
	var mu sync.Mutex
	server := serve(t, keep(t, &got, &mu))
	p := newPublisher(t, httpbridge.Config{})
	e := httpbridge.Endpoint{
		URL: server.URL, Secrets: []string{vectorSecret}, Headers: map[string]string{"Authorization": "Bearer s3cret"},
	}
	receipt, err := p.Send(t.Context(), e, httpbridge.Request{
		ID: "9f86d081884c7d65", Body: []byte("hello"), ContentType: "text/plain", Headers: map[string]string{"x": "y"},
	})
	if err != nil || receipt != "202 req-1" {
		t.Fatalf("%q, %v", receipt, err)
	}
	h := got[0].header
	if err := httpbridge.Verify(h, got[0].body, vectorSecret); err != nil || string(got[0].body) != "hello" ||
		h.Get("Idempotency-Key") != "9f86d081884c7d65" || h.Get("Webhook-Id") != "9f86d081884c7d65" ||
		h.Get("Authorization") != "Bearer s3cret" || h.Get("X") != "y" || h.Get("Content-Type") != "text/plain" {
		t.Errorf("%v: %q %v", err, got[0].body, h)
	}
	want := map[string]string{"event_id": "9f86d081884c7d65", "content-type": "text/plain", "x": "y"}
	if md, err := httpbridge.Metadata(h); err != nil || !maps.Equal(md, want) {
		t.Errorf("metadata %q, %v", md, err)
	}
	for name, r := range map[string]httpbridge.Request{
		"no id": {}, "a dot": {ID: "a.b"}, "a blank": {ID: "a b"}, "an id in Greek": {ID: "α"},
		"a header of HTTP": {ID: "1", Headers: map[string]string{"content-length": "7"}},
		"the endpoint's":   {ID: "1", Headers: map[string]string{"authorization": "mine"}},
		"no name":          {ID: "1", Headers: map[string]string{"a b": "x"}},
		"a value in Greek": {ID: "1", Headers: map[string]string{"a": "α"}},
		"two lines":        {ID: "1", Headers: map[string]string{"a": "b\r\nc: d"}},
		"a content type":   {ID: "1", ContentType: "a\nb"},
	} {
		_, err := p.Send(t.Context(), e, r)
		if class, _ := core.ClassOf(err); class != core.ClassPermanent {
			t.Errorf("%s: %v, %v", name, err, class)
		}
	}
	e.URL = "mailto:ada@example.org"
	_, err = p.Send(t.Context(), e, httpbridge.Request{ID: "1"})
	if class, _ := core.ClassOf(err); class != core.ClassPermanent || !errors.Is(err, httpbridge.ErrEndpoint) {
		t.Errorf("%v, %v", err, class)
	}
	if len(got) != 1 {
		t.Errorf("%d requests arrived", len(got))
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	server := serve(t, func(http.ResponseWriter, *http.Request) { close(arrived); <-release })
	p := newPublisher(t, to(server.URL))
	done := make(chan error, 1)
	d := delivery(t)
	go func() { done <- p.Publish(context.Background(), d) }()
	<-arrived
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with a request under way: %v", err)
	}
	err := p.Publish(t.Context(), d)
	if class, _ := core.ClassOf(err); !errors.Is(err, httpbridge.ErrClosed) || class != core.ClassUnavailable {
		t.Errorf("after Close: %v", err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Errorf("the request under way: %v", err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Errorf("again: %v", err)
	}
}

// The relay waits as long as the endpoint says. That costs no attempt, and nothing is sent
// meanwhile.
func TestTheRelayWaitsAsLongAsRetryAfterSays(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked time.Time
	early, answers := 0, 0
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch answers++; {
		case answers == 1:
			asked = time.Now()
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusTooManyRequests)
		case time.Since(asked) < 1900*time.Millisecond:
			early++
		}
	})
	ob := outboxtest.NewOutbox(t, core.Config{
		Publisher: newPublisher(t, to(server.URL)), Relay: relay.Config{Retry: relay.RetryPolicy{MaxAttempts: 1}},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ob.Run(ctx) }()
	for range 5 {
		must(t, ob.Transactor.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			_, err := ob.Publish(ctx, tx, core.Event{
				Type: "order.placed", Topic: "orders", Key: core.NewEventID(),
			})
			return err
		}))
	}
	for open := -1; open != 0; <-time.After(10 * time.Millisecond) {
		open = 0
		for _, r := range ob.Repository.Rows() {
			if r.Status == outboxtest.StatusDead {
				t.Fatalf("dead: %s", r.Error)
			}
			if r.Status != outboxtest.StatusDone {
				open++
			}
		}
	}
	cancel()
	noError(t, <-ended)
	// Up to four of the five may have been on their way when the first answer came.
	if early > 4 || answers < 6 {
		t.Errorf("%d requests, %d of them in the pause", answers, early)
	}
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// noError fails the test if err is not nil, and goes on. Goroutines of a test may call it.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
