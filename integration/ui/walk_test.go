package ui_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/chromedp/chromedp"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/outboxui"
)

// world is a shop whose broker refuses large orders, and its page under a prefix.
type world struct {
	*fixture.Process
	api    *ops.API
	inbox  *sqlinbox.Store
	page   *outboxui.Handler
	site   string
	broken atomic.Bool
	poison *poisonQueue
}

func newWorld(t *testing.T, db testdb.DB) *world {
	t.Helper()
	var cfg core.Config
	fixture.ChangeRelay(&cfg, func(c *relay.Config) { c.Breaker.Failures = 1000 })
	cfg.Logger = slog.New(slog.DiscardHandler)
	w := &world{Process: fixture.NewProcess(t, db, cfg)}
	w.broken.Store(true)
	w.Publisher.FailFor(func(d core.Delivery) error {
		if w.broken.Load() && len(d.Payload) > 20 {
			return core.Permanent(fmt.Errorf("payload is %d bytes; the broker's limit is 20", len(d.Payload)))
		}
		return nil
	})
	w.besides(db)
	w.poison = &poisonQueue{world: w}
	var err error
	w.api, err = sqlops.New(w.Outbox)
	fixture.NoError(t, err)
	w.page, err = outboxui.New(outboxui.Config{
		Outboxes: []outboxui.Outbox{{
			Name: "shop", API: w.api, Database: db.Name + ", database shop, schema public",
			PoisonQueues: []outboxui.PoisonQueue{{Consumer: "billing", Name: "billing_poison", Open: w.poison.open}},
		}},
		Environment: outboxui.Environment{Name: "staging", Colour: "teal"},
		Authorize: func(*http.Request) (string, outboxui.Rights, error) {
			return "ada", outboxui.See | outboxui.Reveal | outboxui.Act, nil
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	fixture.NoError(t, err)
	t.Cleanup(func() { fixture.NoError(t, w.page.Close()) })
	mux := http.NewServeMux()
	mux.Handle("/admin/outbox/", http.StripPrefix("/admin/outbox", w.page))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	w.site = server.URL + "/admin/outbox/"
	return w
}

// besides makes the tables of consumers, effects and keys.
func (w *world) besides(db testdb.DB) {
	w.T.Helper()
	var err error
	w.inbox, err = sqlinbox.New(w.Pool, sqlinbox.Config{Dialect: db.Dialect})
	fixture.NoError(w.T, err)
	effects, err := sqlcommand.New(w.Pool, sqlcommand.Config{Dialect: db.Dialect})
	fixture.NoError(w.T, err)
	keys, err := sqlonce.New(w.Pool, sqlonce.Config{Dialect: db.Dialect})
	fixture.NoError(w.T, err)
	for _, s := range []interface{ Migrate(context.Context) error }{w.inbox, effects, keys} {
		fixture.NoError(w.T, s.Migrate(w.T.Context()))
	}
}

// orders publishes n orders that are too large, and their payments behind them.
func (w *world) orders(n int) {
	w.T.Helper()
	for i := range n {
		key := fmt.Sprintf("order/%d", i)
		w.Publish(
			core.Event{
				Type: "order.placed", Topic: "orders", Key: key, ContentType: "application/json",
				Payload: []byte(`{"order":9007199254740993,"total":"184.50"}`),
			},
			core.Event{Type: "order.paid", Topic: "orders", Key: key, Payload: []byte("{}")},
		)
	}
	fixture.NoError(w.T, w.Outbox.Drain(w.T.Context()))
}

// gaveUp lets a consumer give up an event.
func (w *world) gaveUp(eventID string) {
	w.T.Helper()
	ctx := w.T.Context()
	_, err := w.inbox.Register(ctx, inbox.Registration{
		Consumer: "billing", Handler: "invoice", Program: "shop",
		Topic: "orders",
	})
	fixture.NoError(w.T, err)
	_, _, err = w.inbox.Fail(ctx, inbox.Failure{
		Event: inbox.Event{
			Key:  inbox.Key{Consumer: "billing", Handler: "invoice", EventID: eventID},
			Type: "order.paid", Topic: "orders",
		},
		Code: "permanent", Text: `tax rate "XI" is not known`, Dead: true,
	})
	fixture.NoError(w.T, err)
	w.poison.park(eventID)
}

// A person sees that orders have died, redrives them step by step, edits one, reveals one, redrives
// a message of a consumer, and pauses and resumes a destination, with a mouse, on a database.
func TestWalk(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) testdb.DB{
		"postgres": testdb.Postgres,
		"sqlite":   testdb.SQLite,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, b := newWorld(t, open(t)), newBrowser(t)
			w.orders(14)
			w.Run()
			b.do(Navigate(w.site))
			b.says("staging", "14 events of orders died, and 14 keys wait.", "14 dead")
			b.press("Open the group")
			w.redrives(b)
			w.edits(b)
			w.consumes(b)
			w.pauses(b)
			w.looks(b)
			b.quiet()
		})
	}
}

// redrives works a group off: one, ten, and the others. The first try stops, because nothing was
// repaired.
func (w *world) redrives(b *browser) {
	b.Helper()
	b.says("14 events of orders died, all with one failure.")
	b.press("Redrive 1…")
	b.says("Nothing is changed yet", "Freeze 14 dead events of orders, and redrive the first one?",
		"database shop, schema public")
	b.press("Freeze 14, redrive 1 on staging") // the browser asks for the reason
	b.says("Nothing is changed yet")
	b.write("reason", "I hope")
	b.press("Freeze 14, redrive 1 on staging")
	b.says("The redrive stopped by itself", "1 of 1 events failed again")
	w.broken.Store(false)
	b.press("Redrive 1…")
	b.says("Reason I hope (of the plan)")
	b.press("Redrive 1 on staging")
	b.says("the next step waits for you", "1 published, 1 failed again")
	b.press("Redrive 10…")
	b.says("Redrive 10 of 14 events of orders?")
	b.press("Redrive 10 on staging")
	b.says("11 published, 1 failed again, 2 to go.")
	b.press("Go on with 2…")
	b.says("Go on with 2 of 14 events of orders?")
	b.press("Go on with 2 on staging")
	b.says("13 published, 1 failed again.", "1 event of orders died") // the first one, which failed again
}

// edits makes the order that is left smaller.
func (w *world) edits(b *browser) {
	b.Helper()
	w.broken.Store(true)
	b.do(Navigate(w.site + "shop/events?status=dead"))
	b.says("1 dead event.")
	b.press("order.placed")
	b.says("It was given up", "Payload and headers")
	if strings.Contains(b.read(), "9007199254740993") {
		b.Fatal("the payload is shown")
	}
	b.press("Reveal… or edit and redrive…")
	b.write("why", "INC-44")
	b.press("Reveal and edit…")
	b.write("payload", `{"total":"18.45"}`)
	b.press("See the difference…")
	b.says("Publish order.placed with this content?", `+ "total": "18.45"`, `"order": 9007199254740993`)
	b.write("reason", "too large for the broker")
	b.press("Edit and redrive on staging")
	b.becomes("Acknowledged by orders")
	b.press("Reveal…")
	b.write("why", "INC-45")
	b.press("Reveal")
	b.says(`"total": "18.45"`, "shown to ada", "the audit has it")
	b.press("All of the audit")
	b.says("INC-45", "reveal")
}

func (w *world) consumes(b *browser) {
	b.Helper()
	id := w.Publish(core.Event{Type: "order.paid", Topic: "orders", Key: "order/99", Payload: []byte("{}")})[0]
	fixture.Await(b, "it is published", func() bool {
		found, err := w.api.Show(b.ctx, id)
		return err == nil && found[0].Status == ops.StatusDone
	})
	w.gaveUp(id)
	b.do(Navigate(w.site + "shop/events/" + id))
	b.says("but Handler invoice of consumer billing gave it up", `tax rate "XI" is not known`)
	b.press("Release to billing…")
	b.says("Release 1 message to billing?", "billing_poison")
	b.write("reason", "rates reloaded")
	b.press("Release 1 on staging")
	b.says("1 delivered again, 1 of them processed", "rates reloaded")
	b.do(Navigate(w.site + "shop/audit"))
	b.says("release", "rates reloaded")

	other := w.Publish(core.Event{Type: "order.paid", Topic: "orders", Key: "order/98", Payload: []byte("{}")})[0]
	w.gaveUp(other)
	b.do(Navigate(w.site + "shop/consumers?status=dead"))
	b.says("Consumer billing gave up 1 message.")
	b.selectFirst()
	b.press("Redrive the selected…")
	b.says("Redrive 1 message for billing?")
	b.write("reason", "delivered by hand")
	b.press("Redrive 1 on staging")
	b.says("waits for its delivery")
}

func (w *world) pauses(b *browser) {
	b.Helper()
	w.Publish(core.Event{Type: "mail", Topic: "mail", Payload: []byte("x")})
	fixture.NoError(b, w.api.Pause(b.ctx, core.PauseRequest{Topic: "mail", Actor: "ann", Reason: "broker upgrade"}))
	w.Publish(core.Event{Type: "mail", Topic: "mail", Payload: []byte("x")})
	b.do(Navigate(w.site))
	b.says("ann has paused destination mail", "broker upgrade")
	b.press("Resume…")
	b.says("Resume destination mail?")
	b.write("reason", "upgraded")
	b.press("Resume destination mail on staging")
	b.becomes("All is well")
}

// looks opens every page, on a phone and in the dark, and none is wider than the window.
func (w *world) looks(b *browser) {
	b.Helper()
	b.phone()
	b.dark()
	for _, name := range []string{
		"", "events", "groups", "keys", "consumers", "effects", "httpkeys", "relays",
		"plans", "audit", "doctor",
	} {
		b.do(Navigate(w.site + "shop/" + name))
		wide, err := Run(b.ctx, Evaluate[int](`document.documentElement.scrollWidth`))
		fixture.NoError(b, err)
		fixture.Check(b, wide <= 390, "%s is %d pixels wide", name, wide)
		ground, err := Run(b.ctx, Evaluate[string](`getComputedStyle(document.body).backgroundColor`))
		fixture.NoError(b, err)
		fixture.Check(b, ground == "rgb(20, 23, 27)", "%s is not dark: %s", name, ground)
	}
}

// A page of a plan that runs reads itself again, and the focus stays where it is.
func TestLive(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t, testdb.SQLite(t)), newBrowser(t)
	w.orders(3)
	w.broken.Store(false)
	w.Publisher.Block()
	w.Run()
	b.do(Navigate(w.site + "shop/groups"))
	b.press("payload is <n> bytes; the broker's limit is <n>")
	b.says("3 events of orders died")
	b.press("Redrive 1…")
	b.write("reason", "limit raised")
	b.press("Freeze 3, redrive 1 on staging")
	b.says("Redrive is running", "1 on the way")
	b.await("a detail is open",
		`(() => { const s = [...document.querySelectorAll('summary')].at(-1);
			s.parentElement.open = true; s.focus(); return true; })()`)
	w.Publisher.Unblock()
	b.says("1 published, 0 failed again") // without a click
	b.await("the detail is open still, and has the focus",
		`document.activeElement.tagName === 'SUMMARY' && document.activeElement.parentElement.open`)
	b.quiet()
}

// Without a script the page reads itself again if its address asks for it.
func TestFollow(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t, testdb.SQLite(t)), newBrowser(t)
	b.do(Navigate(w.site + "shop/?follow=2"))
	b.says("The outbox is empty")
	w.Publish(core.Event{Type: "a", Topic: "orders", Payload: []byte("x")})
	b.says("1 event waits, and no relay is alive.")
	b.quiet()
}
