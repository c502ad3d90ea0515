package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	oncekey "github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// documentedGrants are those of docs/rights.md for the kind of server, by role.
func documentedGrants(t *testing.T, d core.Dialect) map[string][]string {
	t.Helper()
	grants := map[string][]string{}
	other := map[core.Dialect]string{core.Postgres: "-- MariaDB", core.MySQL: "-- PostgreSQL"}[d]
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(
		repository(t, "docs", "rights.md"), -1) {
		if strings.HasPrefix(block[1], other) {
			continue
		}
		for _, m := range regexp.MustCompile(`(?m)^(GRANT .* TO )(\w+);$`).FindAllStringSubmatch(block[1], -1) {
			grants[m[2]] = append(grants[m[2]], strings.Replace(m[1], "ON shop.*", "ON DATABASE.*", 1)+"ROLE")
		}
	}
	return grants
}

// Every part of the program does its work with the rights of docs/rights.md, and with no others.
func TestDocumentedRights(t *testing.T) {
	servers(t, func(w *world) {
		w.ok("migrate", "up", "--tables", "inbox,keys,effects")
		grants := documentedGrants(w.T, w.dialect)
		as := map[string]*world{}
		for _, name := range slices.Sorted(maps.Keys(grants)) {
			as[name] = w.role(grants[name]...)
		}
		worker := w.role(slices.Concat(grants["worker"], grants["producer"])...)
		as["producer"].produces()
		as["relay"].relaysAs(w)
		as["consumer"].consumes()
		as["keys"].keepsKeys()
		worker.executes()
		as["operator"].operates(w)
		as["viewer"].views(w)
		for _, f := range as["doctor"].doctor("--max-transaction", "100h") {
			if strings.HasPrefix(f.Found, "not visible") || strings.HasPrefix(f.Found, "could not") {
				w.Errorf("doctor: %+v", f)
			}
		}
		for _, name := range []string{"viewer", "doctor", "producer", "relay", "consumer"} {
			r := as[name].run("pause", "orders", "--reason", "x", "--yes")
			w.require(r, ExitFailed, "denied")
		}
	})
}

// rows counts rows.
func (w *world) rows(from string) (n int) {
	w.Helper()
	db, err := connect(w.address)
	must(w, err)
	defer db.Close()
	must(w, db.QueryRowContext(w.Context(), "SELECT COUNT(*) FROM "+from).Scan(&n))
	return n
}

// produces publishes as a service does.
func (w *world) produces() {
	w.Helper()
	w.publish(core.Event{Type: "a", Topic: "orders"}, core.Event{Type: "a", Topic: "orders", Key: "7"},
		core.Event{Type: "a", Topic: "orders", Key: "7", TenantID: "acme"},
		core.Event{Type: "a", Topic: "orders", Unordered: true, Delay: time.Hour})
	w.publish(core.Event{Type: "a", Topic: "orders", Key: "7"})
	db := w.open()
	repo, err := sqloutbox.New(db, sqloutbox.Config{Dialect: w.dialect})
	must(w, err)
	ob, err := core.New(core.Config{Repository: repo, BacklogLimit: core.BacklogLimit{Rows: 1000, Age: 24 * time.Hour}})
	must(w, err)
	err = sqltx.NewTransactor(db, w.dialect).RunInTx(w.Context(), func(ctx context.Context, tx core.Tx) error {
		_, err := ob.Publish(ctx, tx, core.Event{Type: "a", Topic: "orders", Key: "8"})
		return err
	})
	must(w, err)
	must(w, repo.Notify(w.Context()))
}

// relaysAs runs a relay that says nothing, publishes, and cleans up. admin sees what is left.
func (w *world) relaysAs(admin *world) {
	w.Helper()
	repo, err := sqloutbox.New(w.open(), sqloutbox.Config{Dialect: w.dialect})
	must(w, err)
	var log output
	ob, err := core.New(core.Config{
		Repository: repo, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Relay: relay.Config{
			PollInterval: 20 * time.Millisecond,
			Retention:    relay.Retention{Keep: time.Millisecond, CleanupInterval: 10 * time.Millisecond},
		},
		Publisher: core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
			if d.Key == "8" {
				return core.Permanent(errors.New("no"))
			}
			return nil
		}),
	})
	must(w, err)
	ctx, stop := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- ob.Run(ctx) }()
	stopped := sync.OnceFunc(func() {
		stop()
		noError(w, <-ended)
	})
	w.Cleanup(stopped)
	admin.await("the relay has published and deleted what is due", func() bool {
		return admin.rows("outbox_event") == 2 // one is delayed, one is dead
	})
	if h := ob.Health(ctx); !h.Ready {
		w.Errorf("%+v", h)
	}
	_, _, err = repo.CollectKeys(ctx, 0, core.KeyID{}, 10)
	must(w, err)
	must(w, errOf(repo.ForgetRelays(ctx, time.Hour)))
	stopped()
	if text := log.String(); strings.Contains(text, "denied") || strings.Count(text, "\n") != 1 { // the dead event
		w.Errorf("the relay complains: %s", text)
	}
}

// consumes does what a consumer with an inbox does.
func (w *world) consumes() {
	w.Helper()
	db := w.open()
	store, err := sqlinbox.New(db, sqlinbox.Config{Dialect: w.dialect})
	must(w, err)
	_, err = store.Register(w.Context(), inbox.Registration{
		Consumer: "billing", Handler: "send", Program: "example.com/a", Topic: "orders",
	})
	must(w, err)
	in, err := inbox.New(inbox.Config{
		Store: store, Transactor: sqltx.NewTransactor(db, w.dialect), Consumer: "billing", Handler: "send",
		Logger: slog.New(slog.DiscardHandler), OnlyNewer: []string{"send"},
	})
	must(w, err)
	for i, answer := range []error{nil, errNoTotal, core.Permanent(errNoTotal)} {
		res := in.Process(w.Context(), inbox.Message{
			ID: core.NewEventID(), Topic: "orders", PartitionKey: "7", KeySeq: int64(i + 1),
		}, func(context.Context, core.Tx, inbox.Message) error { return answer })
		if errors.Is(res.Err, errNoTotal) != (answer != nil) || answer == nil && res.Err != nil {
			w.Errorf("%+v", res)
		}
	}
	results := in.ProcessBatch(w.Context(), []inbox.Message{{ID: core.NewEventID()}, {ID: core.NewEventID()}},
		func(context.Context, core.Tx, []inbox.Message) error { return nil })
	if len(results) != 2 || results[0].Err != nil || results[1].Err != nil {
		w.Errorf("%+v", results)
	}
	must(w, errOf(in.Cleanup(w.Context())))
	must(w, errOf(store.Cleanup(w.Context(), "billing", 0, 10)))
	must(w, errOf(store.CleanupKeys(w.Context(), "billing", 0, 10)))
}

// keepsKeys does what HTTP keys and commands do.
func (w *world) keepsKeys() {
	w.Helper()
	store, err := sqlonce.New(w.open(), sqlonce.Config{Dialect: w.dialect})
	must(w, err)
	must(w, errOf(store.Register(w.Context(), "POST /orders", "example.com/a")))
	runner, err := oncekey.New(oncekey.Config{Store: store, Lease: time.Second})
	must(w, err)
	for i, answer := range []error{nil, errNoTotal} {
		key := oncekey.Key{Scope: "POST /orders", ID: fmt.Sprint(i)}
		_, _, err := runner.Do(w.Context(), key, oncekey.Fingerprint{},
			func(context.Context) (oncekey.Result, error) { return oncekey.Result{}, answer })
		if !errors.Is(err, answer) {
			w.Error(err)
		}
	}
	must(w, errOf(store.Cleanup(w.Context(), 10)))
}

// executes enqueues effects and executes them.
func (w *world) executes() {
	w.Helper()
	w.deadEffect("1")
	store, err := sqlcommand.New(w.open(), sqlcommand.Config{Dialect: w.dialect})
	must(w, err)
	must(w, errOf(store.Register(w.Context(), "mail", "example.com/a")))
	var id string
	err = sqltx.NewTransactor(w.open(), w.dialect).RunInTx(w.Context(), func(ctx context.Context, tx core.Tx) error {
		rec, _, err := store.EnqueueTx(ctx, tx, command.Effect{ID: core.NewEventID(), Channel: "mail", Key: "2"})
		id = rec.ID
		return err
	})
	must(w, err)
	c, err := store.Claim(w.Context(), id, "worker", time.Minute)
	must(w, err)
	claim := command.Claim{ID: id, Owner: "worker", Fence: c.Fence}
	must(w, store.Extend(w.Context(), claim, time.Minute))
	must(w, store.Complete(w.Context(), claim, "7"))
	must(w, errOf(store.Backlog(w.Context(), 10)))
	must(w, errOf(store.Cleanup(w.Context(), time.Hour, 10)))
}

// operates calls every command that changes something. A relay of admin publishes what it opens.
func (w *world) operates(admin *world) {
	w.Helper()
	admin.exec("DELETE FROM outbox_event")
	for _, key := range []string{"1", "2", "3"} {
		admin.publish(core.Event{Type: "a", Topic: "orders", Key: key})
	}
	admin.drain(core.Permanent(errNoTotal), core.BlockKey)
	ids := []string{core.NewEventID(), core.NewEventID()}
	admin.failInbox("mailer", ids[0], true)
	admin.failInbox("mailer", ids[1], true)
	effects := []string{admin.deadEffect("8"), admin.deadEffect("9")}
	var groups []struct{ Fingerprint string }
	w.list(&groups, "groups", "groups")
	var dead []deadRow
	w.list(&dead, "events", "dead")
	if len(groups) != 1 || len(dead) != 3 {
		w.Fatalf("%+v %+v", groups, dead)
	}
	group := groups[0].Fingerprint
	do := func(command ...string) { w.Helper(); w.ok(append(command, "--yes", "--reason", "x")...) }
	silent := func(command ...string) { w.Helper(); w.ok(append(command, "--reason", "x")...) }
	plan := func(command ...string) string {
		w.Helper()
		var p struct{ ID string }
		if code := w.json(&p, append(command, "--reason", "x")...); code != ExitOK {
			w.Errorf("outbox %s: exit code %d", strings.Join(command, " "), code)
		}
		return p.ID
	}
	do("pause", "orders", "--for", "1h")
	do("resume", "orders")
	do("pause", "--tenant", "acme")
	do("resume", "--tenant", "acme")
	do("pause", "--all")
	do("resume", "--all")
	do("rate", "orders", "--in-flight", "1000")
	do("rate", "orders", "--off")
	silent("groups", "note", group, "known")
	silent("groups", "mute", group, "--for", "1h")
	silent("groups", "unmute", group)
	do("window", "declare", "orders", "search", "--keep", "1h")
	do("plans", "pause", plan("redrive", "plan"))
	do("plans", "cancel", plan("redrive", "plan"))
	do("discard", dead[0].ID)
	w.ok("discard", "apply", plan("discard", "plan", dead[1].ID), "--yes")
	do("redrive", "--all", "--skip-dead")
	do("keys", "reset")
	stop := admin.relay(nil)
	admin.await("the events are published", func() bool {
		return admin.rows("outbox_event WHERE topic = 'orders' AND status IN (0, 2)") == 0
	})
	w.ok("replay", "apply", plan("replay", "plan", "--topic", "orders"), "--yes")
	stop()
	do("window", "withdraw", "orders", "search")
	do("inbox", "redrive", ids[0], "--consumer", "mailer")
	do("inbox", "discard", ids[1], "--consumer", "mailer")
	do("effects", "redrive", effects[0])
	do("effects", "discard", effects[1])
}

// views calls every command that only reads.
func (w *world) views(admin *world) {
	w.Helper()
	admin.publish(core.Event{Type: "a", Topic: "views", Key: "1"})
	var page struct{ Events []struct{ ID string } }
	w.json(&page, "list", "--topic", "views")
	for _, command := range []string{
		"status", "list", "list --status dead", "show " + page.Events[0].ID, "explain " + page.Events[0].ID, "dead",
		"groups", "audit", "keys", "inbox", "inbox list", "effects", "effects list", "idempotency", "idempotency list",
		"pauses", "rates", "window list", "plans", "migrate status --tables all", "migrate validate --tables all",
		"redrive --all --dry-run", "discard --all --dry-run", "pause orders --dry-run",
		"replay plan --topic orders --dedup-window 1h --dry-run",
	} {
		r := w.run(strings.Fields(command)...)
		if r.code != ExitOK || strings.Contains(r.err, "denied") {
			w.Errorf("outbox %s: exit code %d\n%s%s", command, r.code, r.out, r.err)
		}
	}
}
