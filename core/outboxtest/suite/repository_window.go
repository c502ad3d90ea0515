package suite

import (
	"fmt"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

func windowCases() []repositoryCase {
	return []repositoryCase{
		{"windows are read as they were declared", windowRead},
		{"another window of the same consumer replaces it", windowReplaced},
		{"a window is withdrawn alone", windowWithdrawn},
		{"windows are no pauses and no rates", windowNoPause},
		{"windows are audited", windowAudited},
	}
}

func (f *fixture) declare(topic, consumer string, keep time.Duration, actor string) {
	f.Helper()
	f.check(f.Store.DeclareWindow(f.Context(), ops.WindowRequest{
		Topic: topic, Consumer: consumer, Keep: keep, Actor: actor, Reason: "its inbox",
	}))
}

func (f *fixture) windows() []ops.Window {
	f.Helper()
	all, err := f.Store.Windows(f.Context())
	f.check(err)
	return all
}

func windowRead(f *fixture) {
	f.must(len(f.windows()) == 0, "a new table has windows")
	f.beat(core.Heartbeat{Node: "clock", SinceClaim: -1, SincePublish: -1})
	now := f.relays()[0].SeenAt
	topic, consumer := strings.Repeat("é", 124)+"t", strings.Repeat("ü", 64)
	f.declare(topic, consumer, ops.Forever, strings.Repeat("a", 255))
	f.declare("orders", `se"arch' `, 90*time.Minute+time.Microsecond, "ann é")
	f.declare("orders", `se"arch'`, time.Nanosecond, "ann")
	f.declare("Orders", "search", time.Hour, "ann")
	got := f.windows()
	f.must(len(got) == 4 && got[0].Topic == "Orders" && got[1].Consumer == `se"arch'` &&
		got[2].Consumer == `se"arch' ` && got[3].Topic == topic, "windows %+v", got)
	f.must(got[1].Keep == time.Nanosecond && got[3].Keep == ops.Forever && got[3].Consumer == consumer,
		"windows %+v", got)
	f.must(got[2].Topic == "orders" && got[2].Keep == 90*time.Minute+time.Microsecond && got[2].Actor == "ann é" &&
		got[2].Reason == "its inbox" && near(got[2].Since.Sub(now), 0), "window %+v", got[2])
}

func windowReplaced(f *fixture) {
	f.declare("orders", "search", time.Hour, "ann")
	f.declare("orders", "search", time.Minute, "bob")
	f.declare("orders", "mails", 2*time.Hour, "ann")
	got := f.windows()
	f.must(len(got) == 2 && got[0].Consumer == "mails" && got[1].Keep == time.Minute && got[1].Actor == "bob",
		"windows %+v", got)
	f.must(f.Store.DeclareWindow(f.Context(), ops.WindowRequest{
		Topic: "orders", Consumer: "search", Keep: time.Second, Actor: "ann",
	}) != nil, "accepted without a reason")
}

func windowWithdrawn(f *fixture) {
	f.declare("orders", "search", time.Hour, "ann")
	f.declare("orders", "mails", time.Hour, "ann")
	f.declare("mails", "search", time.Hour, "ann")
	store := f.Store
	req := ops.WindowRequest{Topic: "orders", Consumer: "search", Actor: "ann", Reason: "gone"}
	for i, want := range []bool{true, false} {
		there, err := store.WithdrawWindow(f.Context(), req)
		f.check(err)
		f.must(there == want, "call %d: withdrawn is %v", i, there)
	}
	got := f.windows()
	f.must(len(got) == 2 && got[0].Topic == "mails" && got[1].Consumer == "mails", "windows %+v", got)
	req.Reason = ""
	_, err := store.WithdrawWindow(f.Context(), req)
	f.must(err != nil, "accepted without a reason")
}

func windowNoPause(f *fixture) {
	f.declare("orders", "search", time.Hour, "ann")
	f.must(len(f.pauses()) == 0, "a window is a pause: %+v", f.pauses())
	f.pause(core.PauseRequest{All: true})
	f.must(len(f.pauses()) == 1 && len(f.windows()) == 1, "pauses %+v, windows %+v", f.pauses(), f.windows())
	f.setRate("orders", 1, 0, "ann")
	f.must(len(f.rates()) == 1 && len(f.windows()) == 1, "rates %+v, windows %+v", f.rates(), f.windows())
}

func windowAudited(f *fixture) {
	store := f.Store
	want := func(action, reason string) {
		f.Helper()
		records, err := f.Repository.ListAudit(f.Context(), core.AuditQuery{Limit: 1})
		f.check(err)
		f.must(len(records) == 1 && records[0].Action == action && records[0].Actor == "ann" &&
			records[0].Topic == "orders" && records[0].Reason == reason, "audited as %+v", records)
	}
	for keep, text := range map[time.Duration]string{time.Hour: "1h0m0s", ops.Forever: "for ever"} {
		f.declare("orders", "search", keep, "ann")
		want(ops.AuditDeclareWindow, fmt.Sprintf("its inbox (consumer search, %s)", text))
	}
	req := ops.WindowRequest{Topic: "orders", Consumer: "search", Actor: "ann", Reason: "gone"}
	_, err := store.WithdrawWindow(f.Context(), req)
	f.check(err)
	want(ops.AuditWithdrawWindow, "gone (consumer search)")
	_, err = store.WithdrawWindow(f.Context(), req)
	f.check(err)
	records, err := f.Repository.ListAudit(f.Context(), core.AuditQuery{Limit: 10})
	f.check(err)
	f.must(len(records) == 3, "a window that nobody declared is withdrawn: %+v", records)
}
