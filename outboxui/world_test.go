package outboxui

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// world is a shop on a bad day, in memory: too large orders, a broker that is down, a person who
// has paused something.
type world struct {
	t    *testing.T
	ob   *outboxtest.Outbox
	api  *ops.API
	page *Handler
	n    int // events so far

	rights Rights
	actor  string
}

const (
	database = "PostgreSQL 18.1, db1.internal, database shop, schema public"
	traceOf  = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)

// bubble runs a test with a clock that stands still unless the test sleeps.
func bubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		defer func() { must(t, w.page.Close()) }()
		test(t, w)
	})
}

func newWorld(t *testing.T, cfg Config) *world {
	t.Helper()
	w := &world{t: t, actor: "ada", rights: See | Reveal | Act}
	w.ob = outboxtest.NewOutbox(t, core.Config{Logger: slog.New(slog.DiscardHandler)})
	var err error
	w.api, err = ops.New(w.ob.Outbox, w.ob.Repository)
	must(t, err)
	cfg.Outboxes = append([]Outbox{{Name: "shop", API: w.api, Database: database}}, cfg.Outboxes...)
	if cfg.Environment.Name == "" {
		cfg.Environment = Environment{Name: "production", Colour: "violet"}
	}
	if cfg.Authorize == nil {
		cfg.Authorize = func(*http.Request) (string, Rights, error) { return w.actor, w.rights, nil }
	}
	if cfg.TraceURL == "" {
		cfg.TraceURL = "https://traces.internal/trace/{trace_id}"
	}
	cfg.Logger = slog.New(slog.DiscardHandler)
	w.page, err = New(cfg)
	must(t, err)
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// publish commits events. Their ids have the time of the bubble.
func (w *world) publish(events ...core.Event) (rows []string) {
	w.t.Helper()
	for i := range events {
		w.n++
		if events[i].ID == "" {
			events[i].ID = fmt.Sprintf("%s-7000-8000-%012d", uuidTime(time.Now()), w.n)
		}
	}
	must(w.t, w.ob.Transactor.RunInTx(w.t.Context(), func(ctx context.Context, tx core.Tx) error {
		_, err := w.ob.Publish(ctx, tx, events...)
		return err
	}))
	for _, e := range events {
		row, err := core.NewRowID(e.ID, e.Topic)
		must(w.t, err)
		rows = append(rows, row.String())
	}
	return rows
}

func uuidTime(at time.Time) string {
	hex := fmt.Sprintf("%012x", at.UnixMilli())
	return hex[:8] + "-" + hex[8:]
}

// tooLarge is how the broker refuses an order.
func tooLarge(bytes int) error {
	return core.Permanent(fmt.Errorf("payload is %d bytes; the broker's limit is 1048576", bytes))
}

// badDay fills the outbox. It returns the rows of the dead orders.
func (w *world) badDay() (dead []string) {
	w.t.Helper()
	w.anHour()
	w.ob.Publisher.FailFor(func(d core.Delivery) error {
		switch {
		case d.Type == "order.placed" && d.Key != "order/1":
			return tooLarge(1_000_000 + 111_111*len(d.Key))
		case d.Topic == "partner":
			return errors.New("partner: 503 try later")
		}
		return nil
	})
	w.ob.Publisher.Outage("mail", errors.New("dial tcp amqp1.internal:5672: connect: connection refused"))
	for i := 1; i <= 4; i++ {
		key := fmt.Sprintf("order/%d", i)
		rows := w.publish(
			core.Event{
				Type: "order.placed", Topic: "orders", Key: key, SchemaVersion: 3,
				Headers: map[string]string{"traceparent": traceOf, "customer_email": "ann@example.com"},
				Payload: []byte(`{"order":9007199254740993,"total":"184.50"}`), ContentType: "application/json",
			},
			core.Event{Type: "order.paid", Topic: "orders", Key: key, Payload: []byte(`{}`)},
		)
		if i > 1 {
			dead = append(dead, rows[0])
		}
		time.Sleep(time.Second)
	}
	w.publish(core.Event{Type: "mail.sent", Topic: "mail", Payload: []byte("x")},
		core.Event{Type: "stock.low", Topic: "partner", Key: "tea", Payload: []byte("y")})
	must(w.t, w.ob.Drain(w.t.Context()))
	time.Sleep(time.Minute)
	w.beat()
	return dead
}

// anHour is a history of one hour.
func (w *world) anHour() {
	w.t.Helper()
	for i := range 12 {
		_, err := w.ob.Repository.AddHistory(w.t.Context(), []core.HistoryCounts{
			{Topic: "orders", Published: int64(700 + 40*i), Refused: int64(i % 3), Died: int64(max(0, i-8))},
			{Topic: "mail", Published: 20},
		})
		must(w.t, err)
		must(w.t, w.ob.Repository.SetHistory(w.t.Context(), core.Backlog{Pending: int64(20 + i*i)}))
		time.Sleep(core.HistorySlot)
	}
}

// beat records a relay that has stopped a destination, and one that is gone.
func (w *world) beat() {
	w.t.Helper()
	beat := core.Heartbeat{
		Node: "shop-2", Host: "web2", PID: 11, Program: "example.com/shop v4.18.2", Version: "v3.0.0", AllTopics: true,
		SinceStart: time.Hour, SinceClaim: time.Second, SincePublish: time.Minute,
	}
	must(w.t, w.ob.Repository.Beat(w.t.Context(), beat))
	time.Sleep(40 * time.Second)
	beat.Node, beat.Host = "shop-1", "web1"
	beat.Stopped = []core.StoppedDestination{{
		Topic: "mail", Since: time.Now().Add(-50 * time.Second), Failures: 3,
		Err: errors.New("dial tcp amqp1.internal:5672: connect: connection refused"),
	}}
	must(w.t, w.ob.Repository.Beat(w.t.Context(), beat))
}

// get asks for a page.
func (w *world) get(path string) *httptest.ResponseRecorder {
	w.t.Helper()
	return w.send(httptest.NewRequest(http.MethodGet, path, nil))
}

// ok asks for a page that must be there.
func (w *world) ok(path string) string {
	w.t.Helper()
	res := w.get(path)
	if res.Code != http.StatusOK {
		w.t.Fatalf("GET %s: %d\n%s", path, res.Code, textOf(res.Body.String()))
	}
	return res.Body.String()
}

// post sends a form, as a browser sends it from the page itself.
func (w *world) post(path string, form url.Values) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return w.send(r)
}

func (w *world) send(r *http.Request) *httptest.ResponseRecorder {
	w.t.Helper()
	res := httptest.NewRecorder()
	w.page.ServeHTTP(res, r.WithContext(w.t.Context()))
	return res
}

// confirm reads the page that asks, and sends its form back with a reason and other fields.
func (w *world) confirm(query, reason string, fields ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	form := hidden(w.t, w.ok("/shop/confirm?"+query))
	form.Set("reason", reason)
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	return w.post("/shop/confirm", form)
}

func coreConfig() core.Config { return core.Config{Logger: slog.New(slog.DiscardHandler)} }

func httptestRecord(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	res := httptest.NewRecorder()
	h.ServeHTTP(res, r)
	return res
}
