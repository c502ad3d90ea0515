package cli

import (
	"context"
	"io"
	"net"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// Wrong arguments are refused, and do not look like an empty answer.
func TestWrongArguments(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ok("migrate", "up")
		for command, says := range map[string]string{
			"list dead":                   `takes no arguments, and got "dead": what it selects is in its flags`,
			"dead orders":                 `outbox dead takes no arguments, and got "orders"`,
			"audit --since -1h":           "--since -1h0m0s: it is negative",
			"audit --after -1":            "--after -1: it is negative",
			"status --max-age -5m":        "--max-age -5m0s: it is negative",
			"doctor --dedup-window -1h":   "--dedup-window -1h0m0s: it is negative",
			"status --timeout -1s":        "--timeout -1s: it is negative",
			"migrate down --to 99 --yes":  "--to 99: this program knows the versions 0 to",
			"groups lst":                  `unknown command "lst" for "outbox groups"`,
			"list --key 7":                "needs the topic too",
			"list --status=":              "--status: it is empty",
			"rate orders --off --reason=": "--reason",
		} {
			r := w.run(strings.Fields(command)...)
			w.require(r, ExitUsage, says, "--help")
			equal(w, r.out, "", "outbox %s prints data", command)
		}
		for _, command := range []string{
			"show", "explain", "plans show", "redrive", "effects redrive", "pause", "rate",
		} {
			args := append(strings.Fields(command), "", "--reason", "x", "--yes") // "$ID" of a variable that is not set
			if command == "show" || command == "explain" || command == "plans show" {
				args = args[:len(args)-3]
			}
			if r := w.run(args...); r.code != ExitUsage || r.out != "" ||
				!strings.Contains(r.err, "argument 1 is empty") {
				w.Errorf("outbox %s '': exit code %d\n%s%s", command, r.code, r.out, r.err)
			}
		}
		for _, command := range []string{
			"migrate up --tables effects", "migrate status", "migrate validate", "doctor",
		} {
			r := w.run(strings.Fields(command)...) // it may be the wrong database
			if _, name, _ := strings.Cut(w.address, "//"); !strings.Contains(r.err, "database: ") || name != "" &&
				!strings.Contains(r.err, path.Base(strings.Split(name, "?")[0])) {
				w.Errorf("outbox %s does not name the database: %s", command, r.err)
			}
		}
		for _, how := range []string{"--dry-run", "--yes"} {
			for _, change := range []string{"redrive", "discard"} {
				w.require(w.run("effects", change, "7", "--reason", "x", how), ExitPartial, "no effect has the id 7")
			}
		}
		w.require(w.run("migrate", "up", "--prefix", "shop"), ExitOK, `the prefix "shop" has no _ at its end`,
			"shopevent")
		if r := w.run("migrate", "up", "--prefix", "shop_"); strings.Contains(r.err, "at its end") {
			w.Errorf("the prefix is a usual one: %s", r.err)
		}
		w.require(w.run("doctor", "--to", "127.0.0.1:9092"), ExitUsage, "--to names no broker that is known")
		w.address = "'" + w.address + "'\n" // as files of variables and secrets have it
		w.ok("status")
		w.address = strings.Trim(w.address, "'\n")
		w.publish(core.Event{Type: "order.placed", Topic: "orders"})
		w.require(w.run("list", "--status", "pending"), ExitOK, "order.placed")
		w.require(w.run("replay", core.RowID{1}.String()), ExitUsage, "plan "+core.RowID{1}.String())
		r := w.run("tail", "--topic", "orders", "--since", "1h", "--limit", "1")
		w.require(r, ExitOK, "order.placed")
		if strings.Contains(r.err, "no event") {
			w.Errorf("the topic has an event: %s", r.err)
		}
		ctx, stop := context.WithCancel(w.Context())
		var errs output
		ended := make(chan int, 1)
		go func() {
			ended <- Run(ctx, []string{"tail", "--topic", "order", "-d", w.address}, Environment{
				In: strings.NewReader(""), Out: io.Discard, Err: &errs, Getenv: func(string) string { return "" },
			})
		}()
		const hint = `no event in the table has the topic "order": is that its name?`
		w.until(5*time.Millisecond, func() bool { return strings.Contains(errs.String(), hint) })
		stop()
		if code := <-ended; code != ExitOK {
			w.Errorf("exit code %d", code)
		}
	})
}

// A server that says nothing, as one of another kind may, is named soon, and not at the end of the
// minute that a command may take.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	w := &world{T: t, address: "mysql://me:hidden@" + l.Addr().String() + "/shop", env: map[string]string{}}
	r := w.run("status", "--timeout", "50ms")
	w.require(r, ExitFailed, "does not answer within 50ms", "is it the address of such a database?")
	if strings.Contains(r.err, "hidden") {
		t.Errorf("the password is shown: %s", r.err)
	}
	_ = l.Close()
	w.address = "postgres://me:hidden@" + l.Addr().String() + "/shop"
	r = w.run("status")
	w.require(r, ExitFailed, "does not answer", "connection refused")
	equal(t, strings.Count(r.err, "connection refused"), 1, "how often the reason is there: %s", r.err)
}
