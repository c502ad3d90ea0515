package cli

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// The command audit lists what people did, with filters and pages.
func TestAudit(t *testing.T) {
	migrated(t, func(w *world) {
		w.require(w.run("audit"), ExitOK, "nothing is recorded")
		w.poison("orders", 2)
		w.ok("redrive", "--all", "--skip-dead", "--actor", "ada", "--reason", "repaired", "--yes")
		w.poison("mails", 1)
		w.ok("discard", "--all", "--topic", "mails", "--actor", "bob", "--reason", "not needed", "--yes")

		var page auditPage
		if w.json(&page, "audit"); len(page.Records) != 3 || page.Next != "" || page.Records[0].Action != "discard" ||
			page.Records[0].Actor != "bob" || page.Records[0].Reason != "not needed" ||
			page.Records[0].Topic != "mails" {
			w.Fatalf("%+v", page)
		}
		row := page.Records[2]
		if w.json(&page, "audit", "--limit", "1", "--actor", "ada"); len(page.Records) != 1 || page.Next == "" {
			w.Fatalf("%+v", page)
		}
		w.require(w.run("audit", "--limit", "2"), ExitOK, "there may be more: --after")
		page = auditPage{}
		w.json(&page, "audit", "--row", row.RowID.String())
		if len(page.Records) != 1 || page.Records[0] != row {
			w.Errorf("of a row: %+v, want %+v", page, row)
		}
		for filter, want := range map[string]int{
			"--action redrive": 2, "--topic mails": 1, "--since 1h": 3, "--actor eve": 0,
		} {
			page = auditPage{}
			if w.json(&page, append([]string{"audit"}, strings.Fields(filter)...)...); len(page.Records) != want {
				w.Errorf("audit %s: %+v", filter, page)
			}
		}
		w.require(w.run("audit", "--row", "x"), ExitUsage, "--row")
		w.require(w.run("audit", "--limit", "0"), ExitUsage, "--limit")
	})
}

// The next page begins where the page before ended.
func TestAuditPages(t *testing.T) {
	migrated(t, func(w *world) {
		w.poison("orders", 5)
		w.ok("discard", "--all", "--reason", "x", "--yes")
		seen := map[string]bool{}
		args := []string{"audit", "--limit", "2"}
		for range 3 {
			var page auditPage
			w.json(&page, args...)
			for _, r := range page.Records {
				seen[r.RowID.String()] = true
			}
			args = []string{"audit", "--limit", "2", "--after", page.Next}
		}
		equal(w, len(seen), 5, "three pages have rows")
	})
}

// A key is blocked by its first dead event, and reset with actor and reason.
func TestKeys(t *testing.T) {
	migrated(t, func(w *world) {
		w.require(w.run("keys"), ExitOK, "no key is blocked")
		w.publish(core.Event{Type: "order.placed", Topic: "orders", Key: "7", Payload: []byte("{}")})
		w.drain(core.Permanent(errNoTotal), core.BlockKey)
		w.publish(
			core.Event{Type: "order.paid", Topic: "orders", Key: "7", Payload: []byte("{}")},
			core.Event{Type: "order.sent", Topic: "orders", Key: "7", Payload: []byte("{}")},
			core.Event{Type: "order.placed", Topic: "orders", Key: "8", Payload: []byte("{}")},
		)
		var all blockedKeys
		w.json(&all, "keys")
		if len(all.Keys) != 1 || all.More {
			w.Fatalf("%+v", all)
		}
		k := all.Keys[0]
		if k.Topic != "orders" || k.Key != "7" || k.Dead != 1 || k.Waiting.N != 2 || k.Waiting.More ||
			k.Head.Type != "order.placed" || !strings.Contains(k.Head.Error, errNoTotal.Error()) {
			w.Errorf("%+v", k)
		}
		w.require(w.run("keys"), ExitOK, k.Head.ID.String(), errNoTotal.Error())
		w.require(w.run("keys", "--topic", "mails"), ExitOK, "no key is blocked")

		w.require(w.run("keys", "reset"), ExitUsage, "--reason")
		w.require(w.run("keys", "reset", "--reason", "x"), ExitRefused, "--yes")
		w.require(w.run("keys", "reset", "--dry-run"), ExitOK, "reset: ")
		w.require(w.answer("n\n", "keys", "reset", "--reason", "x"), ExitRefused, "publish are stopped?")
		w.require(w.run("keys", "resett"), ExitUsage, "unknown command")
		var page auditPage
		if w.json(&page, "audit"); len(page.Records) != 0 {
			w.Errorf("refused resets are in the audit table: %+v", page)
		}
		var done keysReset // MariaDB has a row of its own in the table
		w.json(&done, "keys", "reset", "--reason", "failover", "--actor", "ada", "--yes")
		if done.Keys < 2 || done.Keys > 3 {
			w.Errorf("%+v", done)
		}
		if w.json(&page, "audit"); len(page.Records) != 1 || page.Records[0].Action != core.AuditResetKeys ||
			page.Records[0].Actor != "ada" || page.Records[0].Reason != "failover" || !page.Records[0].RowID.IsZero() {
			w.Errorf("%+v", page)
		}
	})
}

// output is what a command has printed so far.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Each event is printed once when it is committed, also an event that commits after a later one.
func TestTail(t *testing.T) {
	migrated(t, func(w *world) {
		early := core.NewEventID() // of a transaction that commits late
		w.publish(core.Event{Type: "old", Topic: "orders"})

		ctx, stop := context.WithCancel(w.Context())
		defer stop()
		var out, errs output
		ended := make(chan int, 1)
		go func() {
			ended <- Run(ctx, []string{
				"tail", "--json", "--interval", "20ms", "--overlap", "10m", "--topic", "orders", "-d", w.address,
			},
				Environment{
					In: strings.NewReader(""), Out: &out, Err: &errs,
					Getenv: func(string) string { return "" },
				})
		}()
		lines := func() (all []listedEvent) {
			for line := range strings.Lines(out.String()) {
				var e listedEvent
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					w.Fatalf("%q: %v", line, err)
				}
				all = append(all, e)
			}
			return all
		}
		// The first events find out that tail has begun: it prints nothing that was there before.
		for len(lines()) == 0 {
			w.publish(core.Event{Type: "new", Topic: "orders", Key: "7"}, core.Event{Type: "new", Topic: "mails"})
		}
		w.publish(core.Event{ID: early, Type: "late", Topic: "orders"})
		w.until(5*time.Millisecond, func() bool {
			return slices.ContainsFunc(lines(), func(e listedEvent) bool { return e.EventID == early })
		})
		stop()
		if code := <-ended; code != ExitOK || errs.String() != "" {
			w.Errorf("exit code %d, %s", code, errs.String())
		}
		seen := map[core.RowID]bool{}
		for _, e := range lines() {
			if seen[e.ID] || e.Topic != "orders" || e.Type == "old" || time.Since(e.CreatedAt).Abs() > 10*time.Minute ||
				e.Type == "new" && e.Key != "7" {
				w.Errorf("%+v", e)
			}
			seen[e.ID] = true
		}
		r := w.run("tail", "--since", "1h", "--limit", "1", "--type", "old")
		w.require(r, ExitOK, "new         orders  old  -")
		w.require(w.run("tail", "--overlap", "1ms"), ExitUsage, "--overlap")
		w.require(w.run("tail", "--prefix", "other_"), ExitFailed, "outbox migrate up")
	})
}
