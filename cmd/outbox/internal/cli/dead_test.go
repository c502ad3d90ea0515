package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// poison publishes n events of a topic under two keys, and lets a relay find that they can never be
// published.
func (w *world) poison(topic string, n int) {
	w.Helper()
	var events []core.Event
	for i := range n {
		events = append(events, core.Event{
			Type: "order.placed", Topic: topic, Key: fmt.Sprint(i % 2), Payload: []byte("{}"),
		})
	}
	w.publish(events...)
	w.drain(core.Permanent(errors.New("schema v3: field total")), core.SkipDead)
}

// drain relays everything that is due to a destination that answers with err.
func (w *world) drain(err error, policy core.DeadPolicy) {
	w.Helper()
	repo, rerr := sqloutbox.New(w.open(), sqloutbox.Config{Dialect: w.dialect})
	must(w, rerr)
	ob, oerr := core.New(core.Config{
		Repository: repo, DeadPolicy: policy, Logger: slog.New(slog.DiscardHandler),
		Relay:     relay.Config{Retry: relay.RetryPolicy{BaseDelay: time.Hour, MaxDelay: time.Hour}},
		Publisher: core.PublisherFunc(func(context.Context, core.Delivery) error { return err }),
	})
	must(w, oerr)
	stopped := false
	if class, ok := core.ClassOf(err); ok {
		stopped = class == core.ClassUnavailable || class == core.ClassUnroutable
	}
	if err := ob.Drain(w.Context()); (err != nil) != stopped {
		w.Fatalf("drain: %v, want an outage: %t", err, stopped)
	}
}

// relay runs a relay whose destinations all answer with err, until stop is called.
func (w *world) relay(err error) (stop func()) {
	w.Helper()
	repo, rerr := sqloutbox.New(w.open(), sqloutbox.Config{Dialect: w.dialect})
	must(w, rerr)
	ob, oerr := core.New(core.Config{
		Repository: repo, Logger: slog.New(slog.DiscardHandler),
		Publisher: core.PublisherFunc(func(context.Context, core.Delivery) error { return err }), Relay: relay.Config{},
	})
	must(w, oerr)
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- ob.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		must(w, <-ended)
	})
	w.Cleanup(stop)
	return stop
}

// relays lets a relay of the topic look alive.
func (w *world) relays(topic string) {
	w.Helper()
	repo, err := sqloutbox.New(w.open(), sqloutbox.Config{Dialect: w.dialect})
	if err == nil {
		err = repo.Beat(w.Context(), core.Heartbeat{Node: "relay of " + topic, Topics: []string{topic}})
	}
	must(w, err)
}

func TestStatus(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		if w.dialect != core.SQLite {
			w.require(w.run("status"), ExitFailed, "outbox migrate up")
		}
		w.ok("migrate", "up")
		w.require(w.run("status"), ExitOK, "no event waits, and none is dead", "no relay is running")
		w.poison("orders", 2)
		w.publish(
			core.Event{Type: "mail", Topic: "mails", Payload: []byte("{}")},
			core.Event{Type: "mail", Topic: "mails", Key: "1", Payload: []byte("{}")},
			core.Event{Type: "mail", Topic: "later", Payload: []byte("{}"), Delay: time.Hour},
		)
		w.require(w.run("status"), ExitOK, "pending 3", "dead 2", "outbox groups says why events are dead")
		var s outboxState
		if code := w.json(&s, "status", "--max-dead", "1"); code != ExitUnhealthy || s.Pending != 3 || s.Dead != 2 ||
			s.Capped || len(s.Topics) != 3 || s.Relays == nil || len(s.Relays) != 0 {
			w.Fatalf("exit code %d, %+v", code, s)
		}
		for i, want := range []topicState{
			{Topic: "later", Pending: 1},
			{Topic: "mails", Pending: 2, Due: 2},
			{Topic: "orders", Dead: 2},
		} {
			got := s.Topics[i]
			if got.Relayed == nil || *got.Relayed || (got.OldestSecs <= 0) != (want.Pending == 0) {
				w.Errorf("topic %+v", got)
			}
			got.OldestSecs, got.Relayed = 0, nil
			equal(w, got, want, "topic")
		}
		w.require(w.run("status", "--max-age", "1ns"), ExitUnhealthy, "has waited for")
		w.ok("status", "--max-age", "1h", "--max-dead", "2")
	})
}

func TestDeadAndRedrive(t *testing.T) {
	migrated(t, func(w *world) {
		w.golden("dead-none.txt", w.ok("dead"))
		w.poison("orders", 1)
		w.golden("dead.txt", w.ok("dead"))
		w.golden("dead.json", w.ok("dead", "--json"))
		w.poison("mails", 3)
		var rows []deadRow
		w.list(&rows, "events", "dead", "--topic", "mails", "--limit", "2")
		if len(rows) != 2 || rows[0].Topic != "mails" {
			w.Fatalf("%+v", rows)
		}
		first, second := rows[0].ID, rows[1].ID
		w.list(&rows, "events", "dead", "--topic", "mails", "--after", second)
		if len(rows) != 1 || rows[0].ID <= second {
			w.Errorf("the next page is %+v", rows)
		}

		// Nothing happens without a reason and a yes.
		w.require(w.run("redrive", "--all", "--topic", "orders"), ExitUsage, "--reason")
		w.require(w.run("redrive", "--reason", "x"), ExitUsage, "--all")
		w.require(w.run("redrive", "nonsense", "--reason", "x"), ExitUsage, "nonsense")
		w.require(w.run("redrive", "--group", "x", "--reason", "x"), ExitUsage,
			"unknown flag: --group: `outbox redrive plan` has it")
		w.require(w.run("redrive", "plan", "--grup", "x"), ExitUsage, "unknown flag: --grup\n")
		ofEvent := fmt.Sprintf("no row has the id %s: it is that of an event, whose row is %s (dead)", rows[0].EventID,
			rows[0].ID)
		w.require(w.run("redrive", rows[0].EventID, "--reason", "x", "--yes"), ExitPartial, ofEvent)
		w.require(w.run("discard", "plan", rows[0].EventID, "--reason", "x"), ExitUsage, ofEvent)
		w.require(w.run("redrive", "--all", "--reason", "x"), ExitRefused, "4 dead events of 3 keys", "--yes")
		w.require(w.answer("no\n", "redrive", "--all", "--reason", "x"), ExitRefused, "[y/N]")
		w.golden("redrive-dry-run.txt", w.ok("redrive", "--all", "--dry-run", "--skip-dead"))
		w.require(w.run("status"), ExitOK, "dead 4")

		redrive := strings.Fields("redrive --all --topic mails --skip-dead --actor ada --reason repaired")
		w.require(w.answer("y\n", redrive...), ExitOK, "3 events changed")
		var s outboxState
		if w.json(&s, "status"); s.Dead != 1 || s.Pending != 3 {
			w.Errorf("after the redrive: %+v", s)
		}
		w.drain(nil, core.SkipDead)
		if w.json(&s, "status"); s.Dead != 1 || s.Pending != 0 {
			w.Errorf("after the drain: %+v", s)
		}
		var n int
		if err := w.open().QueryRowContext(w.Context(), "SELECT COUNT(*) FROM outbox_audit WHERE actor = 'ada' AND "+
			"reason = 'repaired' AND action = 'redrive'").Scan(&n); err != nil || n != 3 {
			w.Errorf("%d rows of the audit, %v", n, err)
		}

		w.list(&rows, "events", "dead")
		var c change
		code := w.json(&c, "discard", rows[0].ID, first, rows[0].ID, "--yes", "--reason", "lost")
		if code != ExitPartial || c.Changed != 1 || c.Events != 1 || c.Topics["orders"] != 1 {
			w.Errorf("discard of a dead and a published event: exit code %d, %+v", code, c)
		}
		w.golden("dead-none.txt", w.ok("dead"))
		if code := w.json(&c, "discard", "--all", "--yes", "--reason", "lost"); code != ExitOK || c.Changed != 0 {
			w.Errorf("discard of nothing: exit code %d, %+v", code, c)
		}
	})
}

func TestAge(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 12 * time.Millisecond: "12ms", 90 * time.Second: "1m30s", 10 * time.Minute: "10m",
		30 * time.Second: "30s", 90 * time.Minute: "1h30m", 72 * time.Hour: "3d", -time.Minute: "-1m",
	} {
		equal(t, age(d), want, "%s", d)
	}
	if got := short("a\nb" + strings.Repeat("x", 100)); !strings.HasPrefix(got, "a b") || len([]rune(got)) != 80 {
		t.Errorf("short: %q", got)
	}
}

// inOneHour is a time in the SQL of the database.
func (w *world) inOneHour() string {
	return map[core.Dialect]string{
		core.Postgres: "now() + interval '1 hour'", core.MySQL: "UTC_TIMESTAMP(6) + INTERVAL 1 HOUR",
		core.SQLite: sqliteNow + " + 3600000000",
	}[w.dialect]
}

// A reason that cannot be stored is refused by a dry run as by the command.
func TestWhoOfADryRun(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ok("migrate", "up", "--tables", "all")
		w.poison("orders", 1)
		for _, command := range []string{
			"redrive --all", "discard --all", "redrive plan", "keys reset", "inbox redrive --consumer c --all",
			"effects redrive --all", "pause orders", "window declare orders c --keep 1h",
			"replay plan --dedup-window 1h",
		} {
			for _, how := range []string{"--dry-run", "--yes"} {
				args := strings.Fields(command)
				if how == "--dry-run" || !strings.Contains(command, " plan") {
					args = append(args, how)
				}
				w.require(w.run(append(args, "--reason", strings.Repeat("x", 1025))...), ExitUsage,
					"--reason has 1025 bytes, more than 1024")
				w.require(w.run(append(args, "--reason", "caf\xe9")...), ExitUsage, "--reason is not valid UTF-8")
			}
		}
	})
}

// A person ends an event that waits. An event that its destination always refuses never becomes
// dead if nothing else is acknowledged there. An event that a relay holds needs --force.
func TestDiscardWaiting(t *testing.T) {
	migrated(t, func(w *world) {
		mail := core.Event{Type: "mail", Topic: "mails", Key: "ada"}
		w.publish(mail, mail)
		w.drain(core.Transient(errors.New("no route")), core.BlockKey)
		var page ops.Page
		w.json(&page, "list", "--status", "new,retry")
		if len(page.Events) != 2 {
			w.Fatalf("%+v", page)
		}
		first, second := page.Events[0].ID.String(), page.Events[1].ID.String()
		w.require(w.run("redrive", first, "--reason", "x", "--yes"), ExitPartial, "not dead", "outbox explain "+first)
		w.require(w.run("redrive", first, "--dry-run"), ExitPartial, "not dead", "outbox explain "+first,
			"0 of 1 events would be changed")
		w.ok("discard", first, "--dry-run")
		w.require(w.run("discard", "--all", "--reason", "x", "--yes"), ExitOK, "discard: 0 dead events of 0 keys")
		w.require(w.run("discard", first, "--reason", "x"), ExitRefused, "0 dead and 1 waiting event of 1 key")

		w.exec("UPDATE outbox_event SET lease_until = " + w.inOneHour())
		w.require(w.run("discard", first, second, "--dry-run"), ExitPartial, "row "+first+" is leased",
			"0 of 2 events would be changed")
		w.ok("discard", first, "--dry-run", "--force")
		w.require(w.run("discard", first, "--reason", "x", "--yes"), ExitPartial, "0 of 1 events are changed",
			"outbox explain ID")
		w.require(w.run("discard", first, "--reason", "spam", "--yes", "--force"), ExitOK, "1 event changed")
		w.require(w.run("explain", first), ExitOK, "discarded it at", "spam")
		w.require(w.run("discard", first, "--reason", "x", "--yes"), ExitPartial, "is discarded: it has ended")
		w.require(w.run("discard", core.NewEventID(), "--reason", "x", "--yes"), ExitPartial, "no row has the id")
		w.require(w.run("explain", second), ExitOK, "holds it until")
		w.require(w.run("redrive", "--all", "--force", "--reason", "x"), ExitUsage, "unknown flag: --force")

		plan := []string{"discard", "plan", second, "--reason", "spam"}
		w.require(w.run("redrive", "plan", second, "--dry-run"), ExitUsage, "there is nothing to redrive")
		w.require(w.run("redrive", "plan", "nonsense", "--dry-run"), ExitUsage, "nonsense")
		w.require(w.run(append(plan, "--topic", "mails")...), ExitUsage, "not both")
		w.require(w.run(plan...), ExitOK, "is planned", "outbox discard apply")
	})
}

// A person who misspells a name, or names what is not there, is told so.
func TestWrongNames(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		if w.dialect != core.SQLite {
			r := w.run("list")
			w.require(r, ExitFailed, "outbox migrate up")
			if strings.Contains(r.err, "AutoCreate") {
				w.Errorf("the advice is that for programs: %s", r.err)
			}
			var all []finding
			w.list(&all, "findings", "doctor")
			for _, f := range all {
				if strings.Contains(f.Found, "could not be checked") {
					w.Errorf("the tables are missing, and doctor says %+v too", f)
				}
			}
		}
		w.ok("migrate", "up")
		w.publish(core.Event{Type: "mail", Topic: "mails", TenantID: "acme"})
		who := []string{"--reason", "INC-7", "--yes"}
		for _, c := range []struct {
			command string
			hint    bool
		}{
			{"pause mails", false},
			{"pause mail", true},
			{"pause --tenant acme", false},
			{"pause --tenant acne", true},
			{"pause --all", false},
			{"rate mails --per-second 5", false},
			{"rate mail --per-second 5", true},
			{"rate mail --off", false},
		} {
			r := w.run(append(strings.Fields(c.command), who...)...)
			w.require(r, ExitOK)
			if got := strings.Contains(r.err, "is that its name?"); got != c.hint {
				w.Errorf("outbox %s: a hint %t, want %t: %s", c.command, got, c.hint, r.err)
			}
		}
		w.require(w.run("redrive", "apply", "nope", "--yes"), ExitFailed, "no such plan", "`outbox plans`")
		w.require(w.run("redrive", "plan", "--group", "nope", "--reason", "x"), ExitOK, "nothing is stored",
			`failure group "nope"`, "outbox groups")
		for command, hint := range map[string]string{
			"list --topic mail":                      "topic",
			"list --topic mails --tenant acne":       "tenant",
			"list --type mails":                      "type",
			"groups --group 3f1c":                    "failure group",
			"dead --topic mail":                      "topic",
			"keys --topic mail":                      "topic",
			"redrive plan --topic mail":              "topic",
			"redrive --all --topic mail":             "topic",
			"discard --all --tenant acne":            "tenant",
			"list --topic mails --tenant acme":       "",
			"list --topic mails --status dead":       "",
			"groups --topic mails":                   "",
			"redrive --all --topic mails":            "",
			"discard plan --topic mails --type mail": "",
		} {
			args := strings.Fields(command)
			if args[0] == "redrive" || args[0] == "discard" {
				args = append(args, "--dry-run")
			}
			r := w.run(args...)
			w.require(r, ExitOK)
			if _, got, _ := strings.Cut(r.err, "no event in the table has the "); !strings.HasPrefix(got, hint) ||
				(got == "") != (hint == "") {
				w.Errorf("outbox %s: want a hint at the %q: %s", command, hint, r.err)
			}
		}
		for _, to := range []string{"kafka", "kafka:9092", "localhost:9092", "redis"} {
			w.require(w.run("relay", "--to", to), ExitUsage, "names no broker that is known")
		}
		if w.dialect != core.SQLite {
			before, query, _ := strings.Cut(w.address, "?")
			w.address = before + "_is_not_here?" + query
			w.require(w.run("status"), ExitFailed, "refuses the connection")
		}
	})
}

// A value of a filter is that value, whatever it would mean to SQL.
func TestFiltersAreValues(t *testing.T) {
	migrated(t, func(w *world) {
		const quote = "it's 100% \\ `of` \"them\"; --"
		for _, topic := range []string{"orders", quote} {
			w.publish(core.Event{Type: "placed", Topic: topic, TenantID: "acme", Payload: []byte("{}")})
		}
		w.drain(core.Permanent(errors.New("no schema")), core.BlockKey)
		for _, value := range []string{
			"x' OR '1'='1", "%", "_rders", "orders' --", "ORDERS", "*", "orders\\", "'; DROP TABLE outbox_event; --",
		} {
			for _, flag := range []string{"--topic", "--type", "--tenant"} {
				for _, action := range []string{"redrive", "discard"} {
					w.require(w.run(action, "--all", flag, value, "--dry-run"), ExitOK, "0 events would be changed")
				}
			}
			w.require(w.run("list", "--topic", value), ExitOK, "no event")
			w.require(w.run("discard", "plan", "--group", value, "--dry-run"), ExitOK, "0 dead events")
		}
		w.require(w.run("discard", "--all", "--topic", quote, "--reason", "x", "--yes"), ExitOK, "1 event changed")
		w.require(w.run("redrive", "--all", "--reason", "x", "--yes"), ExitOK, "1 event changed")
	})
}

// A payload is shown as it is stored.
func TestPayloadAsStored(t *testing.T) {
	migrated(t, func(w *world) {
		payload := `{"n":9007199254740993,"big":1e400,"a":1,"a":2,"deep":` + strings.Repeat("[", 64) +
			strings.Repeat("]", 64) + `,"t":"\u00e9 <&>"}`
		w.publish(core.Event{Type: "t", Topic: "t", Payload: []byte(payload), ContentType: "application/json"})
		var list struct{ Events []ops.Event }
		w.json(&list, "list", "--topic", "t")
		id := list.Events[0].ID.String()
		w.require(w.run("show", id, "--payload"), ExitOK, payload)
		var all []ops.Details
		w.list(&all, "events", "show", id, "--payload")
		equal(t, string(all[0].Content.Payload), payload, "the payload in JSON")
	})
}
