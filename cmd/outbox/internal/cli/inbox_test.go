package cli

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// errNoTotal is the answer of a destination.
var errNoTotal = errors.New("schema v3: field total")

// failInbox records that a handler has failed with an event.
func (w *world) failInbox(consumer, id string, dead bool) {
	w.Helper()
	store, err := sqlinbox.New(w.open(), sqlinbox.Config{Dialect: w.dialect})
	must(w, err)
	_, _, err = store.Fail(w.Context(), inbox.Failure{
		Event: inbox.Event{
			Key:  inbox.Key{Consumer: consumer, Handler: "send", EventID: id},
			Type: "mail", Topic: "mails",
		},
		Code: "permanent", Text: errNoTotal.Error(), Dead: dead,
	})
	must(w, err)
}

// Messages that consumers failed with are counted, listed, and redriven.
func TestInbox(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.open().PingContext(w.Context())
		w.require(w.run("inbox"), ExitFailed, "outbox migrate up --tables inbox")
		w.ok("migrate", "up", "--tables", "inbox")
		w.require(w.run("inbox"), ExitOK, "no message has failed")
		w.require(w.run("inbox", "list"), ExitOK, "no message")
		ids := []string{core.NewEventID(), core.NewEventID(), core.NewEventID(), core.NewEventID()}
		w.failInbox("mailer", ids[0], true)
		w.failInbox("mailer", ids[1], true)
		w.failInbox("mailer", ids[2], false)
		w.failInbox("biller", ids[3], true)

		var b inboxBacklog
		code := w.json(&b, "inbox", "--max-dead", "2")
		if code != ExitUnhealthy || b.Dead != 3 || len(b.Handlers) != 2 || b.Handlers[1].Consumer != "mailer" ||
			b.Handlers[1].Dead != 2 || b.Handlers[1].Failed != 1 || b.Handlers[1].OldestSecs < 0 {
			w.Errorf("exit code %d, %+v", code, b)
		}
		w.require(w.run("inbox"), ExitOK, "biller    send     0       1")
		var rows []inboxRow
		if w.list(&rows, "messages", "inbox", "list", "--status", "failed"); len(rows) != 1 ||
			rows[0].EventID != ids[2] || rows[0].Error != errNoTotal.Error() || rows[0].FailedAt == nil ||
			time.Since(rows[0].ReceivedAt).Abs() > time.Minute {
			w.Errorf("%+v", rows)
		}
		if w.list(&rows, "messages", "inbox", "list", "--event", ids[3]); len(rows) != 1 ||
			rows[0].Consumer != "biller" {
			w.Errorf("%+v", rows)
		}
		w.require(w.run("inbox", "list", "--limit", "1"), ExitOK, "there may be more")
		w.require(w.run("inbox", "list", "--status", "lost"), ExitUsage, "--status")

		w.require(w.run("inbox", "list", "--consumer", "mailr"), ExitOK, `the consumer "mailr": is that its name?`)
		w.require(w.run("inbox", "redrive", "--consumer", "mailr", "--all", "--dry-run"), ExitOK, `consumer "mailr"`,
			"`outbox inbox` lists them")
		if r := w.run("inbox", "list", "--consumer", "biller", "--status", "failed"); r.err != "" {
			w.Errorf("biller is known, and inbox list says %s", r.err)
		}

		w.require(w.run("inbox", "redrive", "--all", "--reason", "x"), ExitUsage, "--consumer")
		w.require(w.run("inbox", "redrive", "--all", "--consumer", "mailer"), ExitUsage, "--reason")
		w.require(w.run("inbox", "redrive", "--all", "--consumer", "mailer", "--reason", "x"), ExitRefused, "2 dead")
		w.ok("inbox", "redrive", "--all", "--consumer", "mailer", "--dry-run")
		if w.json(&b, "inbox"); b.Dead != 3 {
			w.Errorf("a dry run has changed %+v", b)
		}
		w.require(w.run("inbox", "redrive", "--consumer", "mailer", ids[0], ids[2], "--dry-run"), ExitPartial,
			"1 of 2 messages would be changed: the others are not dead")
		redrive := strings.Fields("inbox redrive --consumer mailer --reason repaired --actor ada --yes")
		w.require(w.run(append(redrive, ids[0], ids[2])...), ExitPartial, "1 of 2 messages are changed")
		var done inboxChange
		if code := w.json(&done, append(redrive, "--all")...); code != ExitOK || done.Changed != 1 {
			w.Errorf("exit code %d, %+v", code, done)
		}
		if w.list(&rows, "messages", "inbox", "list", "--status", "redriven"); len(rows) != 2 ||
			!strings.Contains(rows[0].Error, "ada: repaired") {
			w.Errorf("%+v", rows)
		}
	})
}

// Dead messages are discarded. They are counted no more, and listed with the person and the reason.
func TestInboxDiscard(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ok("migrate", "up", "--tables", "inbox")
		ids := []string{core.NewEventID(), core.NewEventID(), core.NewEventID()}
		w.failInbox("mailer", ids[0], true)
		w.failInbox("mailer", ids[1], true)
		w.failInbox("mailer", ids[2], false)

		w.require(w.run("inbox", "discard", "--all", "--reason", "x"), ExitUsage, "--consumer")
		w.require(w.run("inbox", "discard", "--all", "--consumer", "mailer"), ExitUsage, "--reason")
		w.require(w.run("inbox", "discard", "--all", "--consumer", "mailer", "--reason", "x"), ExitRefused, "2 dead")
		w.ok("inbox", "discard", "--all", "--consumer", "mailer", "--dry-run")
		var b inboxBacklog
		if w.json(&b, "inbox"); b.Dead != 2 {
			w.Errorf("a dry run has changed %+v", b)
		}
		discard := strings.Fields("inbox discard --consumer mailer --reason spam --actor ada --yes")
		w.require(w.run(append(discard, ids[0], ids[2])...), ExitPartial, "1 of 2 messages are changed")
		w.ok(strings.Fields("inbox redrive --consumer mailer --all --reason repaired --yes")...)
		w.require(w.run("inbox", "redrive", "--consumer", "mailer", ids[0], "--reason", "x", "--yes"), ExitPartial,
			"messages are changed")
		w.failInbox("mailer", ids[1], true)
		var done inboxChange
		if code := w.json(&done, append(discard, "--all")...); code != ExitOK || done.Messages != 1 ||
			done.Changed != 1 {
			w.Errorf("exit code %d, %+v", code, done)
		}
		if w.json(&b, "inbox"); b.Dead != 0 || len(b.Handlers) != 1 || b.Handlers[0].Redriven != 0 ||
			b.Handlers[0].Failed != 1 {
			w.Errorf("discarded messages are counted: %+v", b)
		}
		var rows []inboxRow
		if w.list(&rows, "messages", "inbox", "list", "--status", "discarded"); len(rows) != 2 ||
			rows[0].Status != "discarded" || rows[0].Error != "ada: spam" {
			w.Errorf("%+v", rows)
		}
		if w.list(&rows, "messages", "inbox", "list", "--status", "redriven"); len(rows) != 0 {
			w.Errorf("%+v", rows)
		}
	})
}

// deadEffect writes an effect that has died.
func (w *world) deadEffect(key string) (id string) {
	w.Helper()
	db := w.open()
	repo, err := sqloutbox.New(db, sqloutbox.Config{Dialect: w.dialect})
	must(w, err)
	ob, err := core.New(core.Config{Repository: repo})
	must(w, err)
	store, err := sqlcommand.New(db, sqlcommand.Config{Dialect: w.dialect})
	must(w, err)
	q, err := command.NewQueue(command.QueueConfig{Store: store, Outbox: ob})
	must(w, err)
	err = sqltx.NewTransactor(db, w.dialect).RunInTx(w.Context(), func(ctx context.Context, tx core.Tx) error {
		rec, _, err := q.Enqueue(ctx, tx, command.Effect{Channel: "mail", Key: key, Payload: []byte("secret")})
		id = rec.ID
		return err
	})
	must(w, err)
	c, err := store.Claim(w.Context(), id, "worker", time.Minute)
	if err == nil {
		err = store.Fail(w.Context(), command.Claim{ID: id, Owner: "worker", Fence: c.Fence},
			command.Failure{Dead: true, Code: "permanent", Text: errNoTotal.Error()})
	}
	must(w, err)
	return id
}

// Effects are counted, listed without their payloads, and redriven with an event for the worker.
func TestEffects(t *testing.T) {
	migrated(t, func(w *world) {
		w.require(w.run("effects"), ExitFailed, "`outbox migrate up --tables effects` creates the tables")
		w.require(w.run("effects", "--effects-prefix", "p_"), ExitFailed, "there is no table p_side_effect_command",
			"`outbox migrate up --tables effects --prefix p_` creates the tables")
		w.ok("migrate", "up", "--tables", "effects")
		w.require(w.run("effects"), ExitOK, "no effect waits")
		ids := []string{w.deadEffect("1"), w.deadEffect("2"), w.deadEffect("3")}

		var states []effectState
		code := w.list(&states, "channels", "effects", "--max-dead", "0")
		if code != ExitUnhealthy || len(states) != 1 || states[0].Channel != "mail" || states[0].Dead != 3 {
			w.Errorf("exit code %d, %+v", code, states)
		}
		w.require(w.run("effects"), ExitOK, "mail     0        3     0s")
		var rows []effectRow
		if w.list(&rows, "effects", "effects", "list", "--limit", "2"); len(rows) != 2 || rows[0].Key != "1" ||
			rows[0].Status != "dead" || rows[0].Error != errNoTotal.Error() {
			w.Errorf("%+v", rows)
		}
		if w.list(&rows, "effects", "effects", "list", "--after", rows[1].ID); len(rows) != 1 || rows[0].ID != ids[2] {
			w.Errorf("%+v", rows)
		}
		if out := w.ok("effects", "list", "--json"); strings.Contains(out, "secret") || strings.Contains(out, "c2Vj") {
			w.Errorf("list prints the payload: %s", out)
		}
		w.require(w.run("effects", "list", "--status", "lost"), ExitUsage, "--status")
		w.require(w.run("effects", "list", "--channel", "mial"), ExitOK, `the channel "mial": is that its name?`)
		w.require(w.run("effects", "redrive", "--all", "--channel", "mial", "--dry-run"), ExitOK, `channel "mial"`,
			"redrive: 0 effects")
		if r := w.run("effects", "list", "--channel", "mail", "--status", "failed"); r.err != "" {
			w.Errorf("mail is known, and effects list says %s", r.err)
		}

		w.ok("effects", "redrive", ids[0], ids[1], "--dry-run")
		w.require(w.run("effects", "redrive", ids[0], core.NewEventID(), "--dry-run"), ExitPartial,
			"1 of 2 effects would be changed: the others do not exist")
		if w.list(&states, "channels", "effects"); states[0].Dead != 3 || states[0].Pending != 0 {
			w.Errorf("a dry run has changed %+v", states)
		}
		w.require(w.run("effects", "redrive", ids[0]), ExitUsage, "--reason")
		w.require(w.run("effects", "redrive", ids[0], "--reason", "x"), ExitRefused, "--yes")
		w.require(w.run("effects", "redrive", ids[0], core.NewEventID(), "--reason", "x", "--yes"), ExitPartial,
			"1 of 2 effects")
		var done effectsChange
		if code := w.json(&done, "effects", "redrive", "--all", "--channel", "mail", "--reason", "x",
			"--yes"); code != ExitOK || done.Changed != 2 {
			w.Errorf("exit code %d, %+v", code, done)
		}
		if w.list(&states, "channels", "effects"); states[0].Dead != 0 || states[0].Pending != 3 {
			w.Errorf("%+v", states)
		}
		var s outboxState // the event of the first enqueue, and that of the redrive
		if w.json(&s, "status"); s.Pending != 6 {
			w.Errorf("the workers are not woken: %+v", s)
		}
	})
}

// Dead effects are discarded: they are no longer dead, and no worker is woken for them.
func TestEffectsDiscard(t *testing.T) {
	migrated(t, func(w *world) {
		w.ok("migrate", "up", "--tables", "effects")
		ids := []string{w.deadEffect("1"), w.deadEffect("2"), w.deadEffect("3")}
		w.require(w.run("effects", "discard", ids[0]), ExitUsage, "--reason")
		w.require(w.run("effects", "discard", ids[0], "--reason", "x"), ExitRefused, "--yes")
		w.require(w.run("effects", "discard", "--all", "--dry-run"), ExitOK, "3 effects")
		w.require(w.run("effects", "discard", ids[0], ids[0], "--dry-run"), ExitOK, "discard: 1 effect")
		w.require(w.run("effects", "discard", ids[0], ids[0], core.NewEventID(), "--reason", "spam", "--actor", "ada",
			"--yes"), ExitPartial, "1 of 2 effects are changed: the others are not dead")
		w.require(w.run("effects", "discard", ids[0], "--dry-run"), ExitPartial,
			"0 of 1 effects would be changed: the others are not dead")
		w.require(w.run("effects", "redrive", ids[0], "--reason", "x", "--yes"), ExitPartial, "0 of 1 effects")
		var done effectsChange
		if code := w.json(&done, "effects", "discard", "--all", "--channel", "mail", "--reason", "x",
			"--yes"); code != ExitOK || done.Changed != 2 {
			w.Errorf("exit code %d, %+v", code, done)
		}
		w.require(w.run("effects"), ExitOK, "no effect waits, and none is dead")
		var rows []effectRow
		if w.list(&rows, "effects", "effects", "list", "--status", "discarded"); len(rows) != 3 ||
			rows[0].ID != ids[0] || rows[0].Status != "discarded" ||
			rows[0].Error != "ada: spam" || rows[0].DoneAt == nil {
			w.Errorf("%+v", rows)
		}
		if w.list(&rows, "effects", "effects", "list", "--status", "completed"); len(rows) != 0 {
			w.Errorf("discarded effects are completed: %+v", rows)
		}
		var s outboxState // the events of the enqueues
		if w.json(&s, "status"); s.Pending != 3 {
			w.Errorf("workers are woken: %+v", s)
		}
	})
}
