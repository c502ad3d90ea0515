package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	oncekey "github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// rolesWork is the work of each role of docs/rights.md.
var rolesWork = map[string][]feature{
	"producer": {
		{"publish", (*actor).publishes}, {"backlog limit", (*actor).publishesWithin}, {"notify", (*actor).notifies},
	},
	"relay": {
		{"look at tables", (*actor).checks},
		{"pauses and rates", (*actor).readsPauses},
		{"heartbeat", (*actor).beats},
		{"history", (*actor).writesHistory},
		{"publish", (*actor).relays},
		{"retention", (*actor).cleansUp},
		{"keys", (*actor).collects},
	},
	"janitor": {
		{"look at tables", (*actor).checks},
		{"retention", (*actor).cleansUp},
		{"keys", (*actor).collects},
		{"relays", (*actor).forgetsRelays},
	},
	"consumer": {{"consume", (*actor).consumes}},
	"keys":     {{"keys", (*actor).keepsKeys}},
	"worker": {
		{"effects", (*actor).executes}, {"publish", (*actor).publishes}, {"backlog limit", (*actor).publishesWithin},
	},
	"operator": operatorsWork,
	"viewer":   viewersWork,
	"doctor":   {{"doctor", (*actor).examines}},
}

// rows counts rows.
func (w *world) rows(from string) (n int) {
	w.Helper()
	must(w, w.open().QueryRowContext(w.Context(), "SELECT COUNT(*) FROM "+from).Scan(&n))
	return n
}

func (a *actor) repo() *sqloutbox.Repository {
	repo, err := sqloutbox.New(a.open(), sqloutbox.Config{Dialect: a.dialect})
	a.must(err)
	return repo
}

func (a *actor) inTx(fn func(ctx context.Context, tx core.Tx) error) {
	a.must(sqltx.NewTransactor(a.open(), a.dialect).RunInTx(a.Context(), fn))
}

func (a *actor) publishAll(cfg core.Config, events ...core.Event) {
	cfg.Repository = a.repo()
	ob, err := core.New(cfg)
	a.must(err)
	a.inTx(func(ctx context.Context, tx core.Tx) error {
		_, err := ob.Publish(ctx, tx, events...)
		return err
	})
}

func (a *actor) publishes() {
	key := core.NewEventID()
	a.publishAll(
		core.Config{},
		core.Event{Type: "a", Topic: "orders"},
		core.Event{Type: "a", Topic: "orders", Key: key},
		core.Event{Type: "a", Topic: "orders", Key: key, TenantID: "acme"},
		core.Event{Type: "a", Topic: "orders", Unordered: true, Delay: time.Hour},
	)
	a.publishAll(core.Config{}, core.Event{Type: "a", Topic: "orders", Key: key})
}

func (a *actor) publishesWithin() {
	limit := core.BacklogLimit{Rows: 1_000_000, Age: 1000 * time.Hour}
	a.publishAll(core.Config{BacklogLimit: limit}, core.Event{Type: "a", Topic: "orders"})
	a.must(errOf(a.repo().Backlog(a.Context(), 10))) // what the limit asks; Publish only logs that it fails
}

func (a *actor) notifies() { a.must(a.repo().Notify(a.Context())) }

func (a *actor) checks() { a.must(a.repo().Check(a.Context())) }

func (a *actor) readsPauses() {
	a.must(errOf(a.repo().Settings(a.Context())))
}

func (a *actor) beats() {
	repo := a.repo()
	for range 2 {
		a.must(repo.Beat(a.Context(), core.Heartbeat{Node: "x", Topics: []string{"orders"}}))
	}
	a.must(repo.RemoveRelay(a.Context(), "x"))
}

func (a *actor) forgetsRelays() { a.must(errOf(a.repo().ForgetRelays(a.Context(), time.Hour))) }

func (a *actor) writesHistory() {
	repo := a.repo()
	for range 2 {
		a.must(errOf(repo.AddHistory(a.Context(), []core.HistoryCounts{{Topic: "orders", Published: 1}})))
	}
	a.must(repo.SetHistory(a.Context(), core.Backlog{Pending: 1}))
}

// relays publishes what admin has inserted. One event dies.
func (a *actor) relays() {
	topic := core.NewEventID()
	a.admin.publish(core.Event{Type: "a", Topic: topic, Key: "7"}, core.Event{Type: "a", Topic: topic},
		core.Event{Type: "a", Topic: topic, Key: "8"}, core.Event{Type: "a", Topic: topic, Key: "8"})
	router := core.NewRouter()
	router.HandleFunc(topic, func(_ context.Context, d core.Delivery) error {
		if d.Key == "8" && d.KeySeq == 1 {
			return core.Permanent(errors.New("no"))
		}
		return nil
	})
	var log output
	ob, err := core.New(core.Config{
		Repository: a.repo(), Publisher: router, DeadPolicy: core.SkipDead,
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Relay:  relay.Config{PollInterval: 20 * time.Millisecond, DisableJanitor: true},
	})
	a.must(err)
	ctx, stop := context.WithCancel(a.Context())
	ended := make(chan error, 1)
	go func() { ended <- ob.Run(ctx) }()
	open := "outbox_event WHERE topic = '" + topic + "' AND status IN (0, 2)"
	failed := func() bool { return strings.Contains(log.String(), "denied") }
	a.admin.await("the relay has published what is due", func() bool { return a.admin.rows(open) == 0 || failed() })
	h := ob.Health(ctx)
	stop()
	a.must(<-ended)
	switch {
	case failed():
		a.must(errors.New(log.String()))
	case !h.Ready:
		a.must(fmt.Errorf("not ready: %+v", h))
	}
}

func (a *actor) cleansUp() {
	a.admin.publish(core.Event{Type: "a", Topic: "old"})
	a.admin.exec("UPDATE outbox_event SET status = 1, done_at = created_at WHERE topic = 'old'")
	repo := a.repo()
	a.admin.await("old events are deleted", func() bool {
		_, _, err := repo.Cleanup(a.Context(), core.CleanupRequest{Keep: time.Microsecond, Limit: 100})
		a.must(err)
		return a.admin.rows("outbox_event WHERE topic = 'old'") == 0
	})
}

func (a *actor) collects() {
	key := core.NewEventID()
	a.admin.publish(core.Event{Type: "a", Topic: "old", Key: key})
	a.admin.exec("DELETE FROM outbox_event WHERE topic = 'old'")
	var after core.KeyID
	for {
		_, next, err := a.repo().CollectKeys(a.Context(), 0, after, 1000)
		a.must(err)
		if next == (core.KeyID{}) {
			break
		}
		after = next
	}
}

func (a *actor) consumes() {
	store, err := sqlinbox.New(a.open(), sqlinbox.Config{Dialect: a.dialect})
	a.must(err)
	consumer := core.NewEventID()
	for range 2 {
		_, err = store.Register(a.Context(), inbox.Registration{
			Consumer: consumer, Handler: "send", Program: "example.com/a", Topic: "orders",
		})
		a.must(err)
	}
	var log output
	in, err := inbox.New(inbox.Config{
		Store: store, Transactor: sqltx.NewTransactor(a.open(), a.dialect), Consumer: consumer, Handler: "send",
		Logger: slog.New(slog.NewTextHandler(&log, nil)), OnlyNewer: []string{"send"},
	})
	a.must(err)
	var id string
	for i, answer := range []error{nil, errNoTotal, core.Permanent(errNoTotal)} {
		id = core.NewEventID()
		res := in.Process(a.Context(), inbox.Message{
			ID: id, Topic: "orders", PartitionKey: "7", KeySeq: int64(i + 1),
		}, func(context.Context, core.Tx, inbox.Message) error { return answer })
		if answer == nil || !errors.Is(res.Err, errNoTotal) {
			a.must(res.Err)
		}
		if strings.Contains(fmt.Sprint(res.Err), "denied") {
			a.must(res.Err)
		}
	}
	for _, res := range in.ProcessBatch(a.Context(), []inbox.Message{{ID: core.NewEventID()}, {ID: core.NewEventID()}},
		func(context.Context, core.Tx, []inbox.Message) error { return nil }) {
		a.must(res.Err)
	}
	if strings.Contains(log.String(), "denied") {
		a.must(errors.New(log.String()))
	}
	a.admin.ok("inbox", "discard", id, "--consumer", consumer, "--reason", "x", "--yes")
	a.must(errOf(in.Cleanup(a.Context())))
	a.must(errOf(store.Cleanup(a.Context(), consumer, 0, 10)))
	a.must(errOf(store.CleanupKeys(a.Context(), consumer, 0, 10)))
}

func (a *actor) keepsKeys() {
	store, err := sqlonce.New(a.open(), sqlonce.Config{Dialect: a.dialect})
	a.must(err)
	a.must(errOf(store.Register(a.Context(), "POST /orders", "example.com/old")))
	a.admin.exec("UPDATE idempotency_program SET seen_at = '2020-01-01 00:00:00'")
	a.must(errOf(store.Register(a.Context(), "POST /orders", "example.com/a")))
	if a.admin.rows("idempotency_program WHERE program = 'example.com/old'") > 0 {
		a.must(errors.New("denied: an old program is not forgotten"))
	}
	runner, err := oncekey.New(oncekey.Config{Store: store, Lease: time.Second})
	a.must(err)
	for _, answer := range []error{nil, errNoTotal} {
		key := oncekey.Key{Scope: "POST /orders", ID: core.NewEventID()}
		_, _, err := runner.Do(a.Context(), key, oncekey.Fingerprint{},
			func(context.Context) (oncekey.Result, error) { return oncekey.Result{}, answer })
		if !errors.Is(err, answer) || answer == nil {
			a.must(err)
		}
	}
	a.admin.exec("UPDATE idempotency_key SET expires_at = created_at")
	a.admin.await("old keys are deleted", func() bool {
		a.must(errOf(store.Cleanup(a.Context(), 10)))
		return a.admin.rows("idempotency_key") == 0
	})
}

// executes enqueues an effect with its event, and executes it.
func (a *actor) executes() {
	store, err := sqlcommand.New(a.open(), sqlcommand.Config{Dialect: a.dialect})
	a.must(err)
	for range 2 {
		a.must(errOf(store.Register(a.Context(), "mail", "example.com/a")))
	}
	ob, err := core.New(core.Config{Repository: a.repo()})
	a.must(err)
	q, err := command.NewQueue(command.QueueConfig{Store: store, Outbox: ob})
	a.must(err)
	var id string
	a.inTx(func(ctx context.Context, tx core.Tx) error {
		rec, _, err := q.Enqueue(ctx, tx, command.Effect{Channel: "mail", Key: core.NewEventID()})
		id = rec.ID
		return err
	})
	c, err := store.Claim(a.Context(), id, "worker", time.Minute)
	a.must(err)
	claim := command.Claim{ID: id, Owner: "worker", Fence: c.Fence}
	a.must(store.Extend(a.Context(), claim, time.Minute))
	a.must(store.Complete(a.Context(), claim, "7"))
	a.must(errOf(store.Backlog(a.Context(), 10)))
	a.admin.await("the effect is deleted", func() bool {
		_, err := store.Cleanup(a.Context(), time.Microsecond, 10)
		a.must(err)
		return a.admin.rows("side_effect_command WHERE id = '"+id+"'") == 0
	})
}

// examines requires that nothing is hidden from doctor.
func (a *actor) examines() {
	r := a.run("doctor", "--max-transaction", "100h", "--json")
	if strings.Contains(r.out, "not visible") || strings.Contains(r.out, "could not") || r.code == ExitFailed {
		a.must(fmt.Errorf("not visible: %s%s", r.out, r.err))
	}
}

// dies makes an event that is dead, and returns its row.
func (a *actor) dies(topic string) (row string) {
	a.admin.publish(core.Event{
		Type:          "a",
		Topic:         topic,
		Key:           core.NewEventID(),
		AggregateType: "order",
		AggregateID:   topic,
		Payload:       []byte(`{"a":1}`),
	})
	a.admin.drain(core.Permanent(errNoTotal), core.BlockKey)
	var dead []deadRow
	a.admin.list(&dead, "events", "dead", "--topic", topic)
	if len(dead) != 1 {
		a.Fatalf("%+v", dead)
	}
	return dead[0].ID
}

// changes is a feature of one command that changes something. Its words may have {row}, a dead event,
// {topic}, the topic of that event, {plan}, a plan of the actor, {group}, a failure group, {inbox}, a
// message that consumer mailer gave up, {effect}, a dead effect, and {file}, a file with JSON.
func changes(command string) feature {
	return feature{command, func(a *actor) {
		topic := core.NewEventID()
		words := []string{"{topic}", topic}
		put := func(word string, value func() string) {
			if strings.Contains(command, word) {
				words = append(words, word, value())
			}
		}
		put("{row}", func() string { return a.dies(topic) })
		put("{group}", func() string {
			a.dies(topic)
			var groups []struct{ Fingerprint string }
			a.admin.list(&groups, "groups", "groups", "--muted")
			return groups[0].Fingerprint
		})
		put("{inbox}", func() string {
			id := core.NewEventID()
			a.admin.failInbox("mailer", id, true)
			return id
		})
		put("{effect}", func() string { return a.admin.deadEffect(topic) })
		put("{file}", func() string {
			path := filepath.Join(a.TempDir(), "fixed.json")
			a.must(os.WriteFile(path, []byte(`{"a":2}`), 0o600))
			return path
		})
		put("{plan}", func() string {
			a.dies(topic)
			return a.plan("redrive", "plan", "--topic", topic)
		})
		put("{discard}", func() string {
			a.dies(topic)
			return a.plan("discard", "plan", "--topic", topic)
		})
		a.cli(strings.Fields(strings.NewReplacer(words...).Replace(command))...)
	}}
}

// plan makes a plan, and returns its id.
func (a *actor) plan(command ...string) string {
	var p struct{ ID string }
	out := a.cli(append(command, "--reason", "x", "--json")...)
	a.must(json.Unmarshal([]byte(out), &p))
	return p.ID
}

var operatorsWork = []feature{
	changes("pause {topic} --for 1h --reason x --yes"),
	{"resume", func(a *actor) {
		topic := core.NewEventID()
		a.admin.ok("pause", topic, "--for", "1h", "--reason", "x", "--yes")
		a.cli("resume", topic, "--reason", "x", "--yes")
	}},
	changes("pause --tenant {topic} --reason x --yes"),
	changes("rate {topic} --in-flight 1000 --reason x --yes"),
	changes("groups note {group} known --reason x"),
	changes("groups mute {group} --for 1h --reason x"),
	{"groups unmute", func(a *actor) {
		topic := core.NewEventID()
		a.dies(topic)
		var groups []struct{ Fingerprint string }
		a.admin.list(&groups, "groups", "groups", "--muted")
		a.admin.ok("groups", "mute", groups[0].Fingerprint, "--for", "1h", "--reason", "x")
		a.cli("groups", "unmute", groups[0].Fingerprint, "--reason", "x")
	}},
	changes("window declare {topic} search --keep 1h --reason x --yes"),
	{"withdraw a window", func(a *actor) {
		topic := core.NewEventID()
		a.admin.ok("window", "declare", topic, "search", "--keep", "1h", "--reason", "x", "--yes")
		a.cli("window", "withdraw", topic, "search", "--reason", "x", "--yes")
	}},
	changes("plans cancel {plan} --reason x --yes"),
	changes("discard {row} --reason x --yes"),
	changes("discard apply {discard} --yes"),
	changes("redrive {row} --reason x --yes"),
	{"redrive behind others", func(a *actor) {
		topic := core.NewEventID()
		a.dies(topic)
		a.cli("redrive", "--all", "--topic", topic, "--skip-dead", "--reason", "x", "--yes")
	}},
	changes("edit {row} --payload {file} --reason x --yes"),
	{"replay", func(a *actor) {
		topic := core.NewEventID()
		a.admin.publish(core.Event{Type: "a", Topic: topic, Key: "1"})
		defer a.admin.relay(nil)()
		a.admin.await("the event is published", func() bool {
			return a.admin.rows("outbox_event WHERE status = 1 AND topic = '"+topic+"'") == 1
		})
		a.cli("replay", "apply", a.plan("replay", "plan", "--topic", topic, "--dedup-window", "24h"), "--yes")
	}},
	changes("keys reset --reason x --yes"),
	changes("inbox redrive {inbox} --consumer mailer --reason x --yes"),
	changes("inbox discard {inbox} --consumer mailer --reason x --yes"),
	changes("effects redrive {effect} --reason x --yes"),
	changes("effects discard {effect} --reason x --yes"),
	{"erase", (*actor).erases},
	{"inbox release", (*actor).releases},
	{"reveal", func(a *actor) {
		row, err := core.ParseRowID(a.dies(core.NewEventID()))
		a.must(err)
		ob, err := core.New(core.Config{Repository: a.repo()})
		a.must(err)
		store, err := sqlops.NewStore(a.repo())
		a.must(err)
		api, err := ops.New(ob, store)
		a.must(err)
		a.must(errOf(api.Reveal(a.Context(), row, "ada", "x")))
	}},
}

// erases erases an event, its effect, and the answer of a key. The audit of an edit is erased too.
func (a *actor) erases() {
	topic := core.NewEventID()
	row := a.dies(topic)
	file := filepath.Join(a.TempDir(), "fixed.json")
	a.must(os.WriteFile(file, []byte(`{"a":2}`), 0o600))
	a.admin.ok("edit", row, "--payload", file, "--reason", "x", "--yes")
	a.admin.drain(nil, core.BlockKey)
	var page struct{ Events []struct{ EventID string } }
	a.admin.json(&page, "list", "--topic", topic)
	effects, err := sqlcommand.New(a.admin.open(), sqlcommand.Config{Dialect: a.dialect})
	a.must(err)
	admin := &actor{world: a.admin, admin: a.admin}
	admin.inTx(func(ctx context.Context, tx core.Tx) error {
		_, _, err := effects.EnqueueTx(ctx, tx, command.Effect{
			ID: core.NewEventID(), Channel: "mail", Key: topic, Payload: []byte("x"), EventID: page.Events[0].EventID,
		})
		return err
	})
	keys, err := sqlonce.New(a.admin.open(), sqlonce.Config{Dialect: a.dialect})
	a.must(err)
	key := oncekey.Key{Scope: "s", ID: topic}
	got, err := keys.Acquire(a.Context(), oncekey.Request{Key: key, Owner: "o", Lease: time.Minute, TTL: time.Hour})
	a.must(err)
	claim := oncekey.Claim{Key: key, Owner: "o", Fence: got.Fence}
	a.must(keys.Complete(a.Context(), claim, oncekey.Result{Data: []byte("x")}, time.Hour))
	r := a.run("erase", "--aggregate", "order/"+topic, "--key", topic, "--open", "--reason", "x", "--yes")
	if r.code != ExitOK && r.code != ExitPartial || strings.Contains(r.err, "denied") {
		a.must(errors.New(r.err + r.out))
	}
}

var viewersWork = []feature{{"look", func(a *actor) {
	topic := core.NewEventID()
	a.admin.publish(core.Event{Type: "a", Topic: topic, Key: "1"})
	a.admin.failInbox("mailer", core.NewEventID(), true)
	var page struct{ Events []struct{ ID string } }
	a.must(json.Unmarshal([]byte(a.cli("list", "--topic", topic, "--json")), &page))
	row := page.Events[0].ID
	for _, command := range []string{
		"status", "list", "list --status dead", "list --cause " + core.NewEventID(), "show " + row,
		"show " + row + " --payload",
		"explain " + row, "dead", "groups", "audit", "audit --row " + row + " --json", "keys", "history", "inbox",
		"inbox list", "effects", "effects list", "idempotency", "idempotency list", "pauses", "rates",
		"window list", "plans",
		"migrate status --tables all", "migrate validate --tables all", "redrive --all --dry-run",
		"discard --all --dry-run", "pause orders --dry-run", "erase --aggregate order/1 --dry-run",
		"replay plan --topic orders --dedup-window 1h --dry-run",
	} {
		a.cli(strings.Fields(command)...)
	}
}}}
