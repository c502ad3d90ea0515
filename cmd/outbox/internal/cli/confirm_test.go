package cli

import (
	"context"
	"errors"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/ormoutbox/ormoutbox/core"
)

// A question says which tables of which database it is about, and of how many rows. So does the
// refusal where nobody can be asked.
func TestQuestions(t *testing.T) {
	migrated(t, func(w *world) {
		w.ok("migrate", "up", "--tables", "inbox,effects")
		w.publish(core.Event{Type: "a", Topic: "orders", Key: "1"}, core.Event{Type: "a", Topic: "orders", Key: "2"})
		w.drain(core.Permanent(errors.New("no")), core.BlockKey)
		w.publish(core.Event{Type: "a", Topic: "mails"})
		w.failInbox("billing", "7", true)
		w.deadEffect("1")
		var p struct{ ID string }
		w.json(&p, "redrive", "plan", "--reason", "x")
		where, schema := "sqlite "+strings.TrimPrefix(strings.Split(w.address, "?")[0], "sqlite:"), ""
		if w.dialect != core.SQLite {
			u, err := url.Parse(w.address)
			must(w, err)
			if w.dialect == core.Postgres { // the server of the tests asks for none
				u.User = url.UserPassword(u.User.Username(), "hunter2")
				w.address = u.String()
			}
			kind := map[core.Dialect]string{core.Postgres: "postgres ", core.MySQL: "mysql "}[w.dialect]
			where = kind + u.Host + u.Path
		}
		if w.dialect == core.Postgres {
			schema = "public."
		}
		in := func(tables string) string { return " in " + schema + tables + " at " + where + "?" }
		const reason = " --reason x"
		for command, question := range map[string]string{
			"redrive --all" + reason:                          "redrive 2 events" + in("outbox_*"),
			"discard --all" + reason:                          "discard 2 events" + in("outbox_*"),
			"redrive apply " + p.ID:                           "redrive 2 events" + in("outbox_*"),
			"plans cancel " + p.ID + reason:                   "cancel plan " + p.ID + " of 2 events" + in("outbox_*"),
			"plans pause " + p.ID + reason:                    "pause plan " + p.ID + " of 2 events" + in("outbox_*"),
			"pause mails" + reason:                            "destination mails (1 event waits)" + in("outbox_*"),
			"resume --all" + reason:                           "resume everything (2 events wait)" + in("outbox_*"),
			"rate mails --in-flight 3" + reason:               "set destination mails (1 event waits) to ",
			"window declare orders search --keep 1h" + reason: "remembers events of orders: 1h0m0s," + in("outbox_*"),
			"window withdraw orders search" + reason:          "consumer search of orders" + in("outbox_*"),
			"keys reset" + reason:                             " keys" + in("outbox_*"),
			"inbox redrive --all --consumer billing" + reason: "redrive 1 message" + in("inbox_*"),
			"inbox discard --all --consumer billing" + reason: "discard 1 message" + in("inbox_*"),
			"effects redrive --all" + reason:                  "redrive 1 effect" + in("side_effect_*"),
			"effects discard --all" + reason:                  "discard 1 effect" + in("side_effect_*"),
			"migrate down --to 0 --tables inbox":              " in " + schema + "inbox_* at " + where + "?",
		} {
			args := strings.Fields(command)
			w.require(w.answer("n\n", args...), ExitRefused, question, " [y/N] ")
			r := w.run(args...)
			w.require(r, ExitRefused, question, "--yes", path.Base(where))
			if strings.Contains(r.err+r.out, "hunter2") {
				w.Errorf("outbox %s shows the password: %s%s", command, r.out, r.err)
			}
		}
	})
}

// With another prefix or schema the question has another one.
func TestQuestionsOfOtherTables(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPostgres)
	w.exec("CREATE SCHEMA shop")
	w.exec("CREATE SCHEMA Billing")
	w.ok("migrate", "up", "--schema", "shop", "--prefix", "p_")
	w.ok("migrate", "up", "--schema", "billing")
	keys := []string{"keys", "reset", "--reason", "x"}
	w.require(w.answer("n\n", append(keys, "--schema", "shop", "--prefix", "p_")...), ExitRefused, " in shop.p_* at ")
	w.require(w.answer("n\n", append(keys, "--schema", "billing")...), ExitRefused, " in billing.outbox_* at ")
	w.address += "&search_path=billing" // and not the default
	w.require(w.answer("n\n", keys...), ExitRefused, " in billing.outbox_* at ")
	w.require(w.run("migrate", "up", "--schema", "shop", "--prefix", "p_"), ExitOK, ", schema shop, prefix p_\n")
}

// Every host of an address may be the one that answers.
func TestHostsOfAnAddress(t *testing.T) {
	t.Parallel()
	db, err := connect("postgres://me:hunter2@db1,db2:5433/shop")
	must(t, err)
	defer db.Close()
	equal(t, db.name, "postgres db1:5432,db2:5433/shop", "the name")
}

// A flag whose value is a variable that is not set is refused, and does not mean the default, which
// selects more.
func TestEmptyFlags(t *testing.T) {
	t.Parallel()
	w := &world{T: t, address: "sqlite::memory:", env: map[string]string{}}
	n := 0
	for _, c := range leaves(NewRoot()) {
		c.InheritedFlags() // they are merged then
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if kind := f.Value.Type(); kind == "bool" || f.Name == "help" {
				return
			}
			args := append(strings.Fields(c.CommandPath())[1:], "--"+f.Name+"=")
			for rest := []string{}; c.ValidateArgs(rest) != nil; rest = append(rest, "x") {
				args = append(args, "x")
			}
			var errs strings.Builder
			code := Run(context.Background(), args, Environment{
				In: strings.NewReader(""), Out: &errs, Err: &errs, Getenv: func(string) string { return "" },
			})
			if n++; code != ExitUsage || !strings.Contains(errs.String(), "--"+f.Name) {
				t.Errorf("outbox %s: exit code %d\n%s", strings.Join(args, " "), code, errs.String())
			}
		})
	}
	if n < 300 {
		t.Errorf("%d flags were looked at", n)
	}
	w.require(w.run("status", "--schema", ""), ExitUsage, "--schema: it is empty", "leave the flag out")
}
