package cli

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/health"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// Wrong arguments are refused, and do not look like an empty answer.
func TestWrongArguments(t *testing.T) {
	migrated(t, func(w *world) {
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

// The exit code of a probe is what the relay answers.
func TestProbe(t *testing.T) {
	t.Parallel()
	ob, err := core.New(core.Config{Repository: outboxtest.NewRepository(), Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", health.Live(ob))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"status":"failed","problems":["the relay is stopping"]}`, http.StatusServiceUnavailable)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	address := strings.TrimPrefix(s.URL, "http://")
	w := &world{T: t, env: map[string]string{"OUTBOX_LISTEN": address}}
	w.require(w.run("probe"), ExitOK, "ok")
	_, port, _ := strings.Cut(address, ":")
	for _, listen := range []string{":" + port, "0.0.0.0:" + port, "[::]:" + port} {
		w.require(w.run("probe", "--listen", listen), ExitOK, "ok")
	}
	w.require(w.run("probe", "--ready"), ExitUnhealthy, "the relay is stopping", "503")
	var report health.Report
	if code := w.json(&report, "probe", "--ready"); code != ExitUnhealthy || report.Status != health.Failed {
		t.Errorf("exit code %d, %+v", code, report)
	}
	w.env["OUTBOX_LISTEN"] = "127.0.0.1:1" // no server listens there
	w.require(w.run("probe"), ExitUnhealthy, "does not answer")
	w.env["OUTBOX_LISTEN"] = ""
	w.require(w.run("probe"), ExitUsage, "--listen")
}
