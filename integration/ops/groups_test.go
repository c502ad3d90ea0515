package ops_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Events that failed alike are one group, whatever the ids, numbers and keys in their errors.
func TestGroups(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db, core.Config{})
		for i := range 6 {
			w.Publish(
				core.Event{Type: "dead.paid", Topic: "orders", Key: fmt.Sprint("k", i%4), Payload: make([]byte, i)},
				core.Event{Type: "dead.paid", Topic: "orders"},
				core.Event{Type: "retry.paid", Topic: "orders"},
				core.Event{Type: "dead.sent", Topic: "orders"},
			)
		}
		w.Publish(
			core.Event{Type: "paid", Topic: "orders"},
			core.Event{Type: "paid", Topic: "orders", Delay: time.Hour},
		)
		w.drain()
		got, err := w.api.Groups(t.Context(), ops.Filter{})
		fixture.NoError(t, err)
		fixture.Must(t, len(got.Groups) == 3 && !got.Truncated, "%+v", got)
		byType := map[string]ops.Group{}
		for _, g := range got.Groups {
			byType[g.Type] = g
		}
		paid := byType["dead.paid"]
		// In each of the four keys, the first event is dead, and the second one waits behind it.
		if got.Groups[0].Type != "dead.paid" || paid.Dead != 10 || paid.Retrying != 0 || paid.BlockedKeys != 4 ||
			paid.ErrorCode != "permanent" || paid.Topic != "orders" ||
			paid.Pattern != "field <text> of event <id> is missing in version <n>" {
			t.Errorf("%+v", paid)
		}
		all := walk(w, ops.ListQuery{Filter: ops.Filter{Fingerprint: paid.Fingerprint}, Limit: 1000})
		fixture.Check(t, len(all) == 10, "the fingerprint selects %d events", len(all))
		first, last := all[0], all[0]
		for _, e := range all {
			fixture.Check(t, e.Type == "dead.paid" && e.Status == ops.StatusDead, "in the group is %+v", e)
			if e.CreatedAt.Before(first.CreatedAt) {
				first = e
			}
			if e.CreatedAt.After(last.CreatedAt) {
				last = e
			}
		}
		if !paid.First.Equal(first.CreatedAt) || !paid.Last.Equal(last.CreatedAt) ||
			!paid.Sample.CreatedAt.Equal(last.CreatedAt) || paid.Sample.EventID == "" {
			t.Errorf("from %s to %s, sample %+v", paid.First, paid.Last, paid.Sample)
		}
		if g := byType["retry.paid"]; g.Retrying != 6 || g.Dead != 0 || g.BlockedKeys != 0 ||
			g.ErrorCode != "transient" {
			t.Errorf("%+v", g)
		}
		got, err = w.api.Groups(t.Context(), ops.Filter{Statuses: []ops.Status{ops.StatusRetry}})
		fixture.Check(t, err == nil && len(got.Groups) == 1 && got.Groups[0].Type == "retry.paid", "%+v %v", got, err)

		// The relay has stored the groups.
		stored := func(where string) int64 {
			return fixture.Count(t, w.Pool, "SELECT COUNT(*) FROM outbox_event WHERE error_group "+where)
		}
		if n := stored("= '" + paid.Fingerprint + "'"); n != 10 {
			t.Errorf("%d of 10 events have a stored group", n)
		}
		if n := stored("IS NOT NULL"); n != 22 {
			t.Errorf("%d of 22 failures have a stored group", n)
		}
		if n, err := w.api.Count(t.Context(), ops.Filter{Fingerprint: paid.Fingerprint}); err != nil || n.N != 10 {
			t.Errorf("the fingerprint selects %s events, %v", n, err)
		}

		_, err = w.api.Groups(t.Context(), ops.Filter{Statuses: []ops.Status{ops.StatusDone}})
		fixture.Check(t, errors.Is(err, core.ErrInvalidRequest), "done events have groups: %v", err)
	})
}

// Groups shows notes and mutes. An unknown group can have neither.
func TestGroupNotes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db, core.Config{})
		w.Publish(core.Event{Type: "dead.paid", Topic: "orders"}, core.Event{Type: "dead.sent", Topic: "orders"})
		w.drain()
		groups := func() map[string]ops.Group {
			t.Helper()
			all, err := w.api.Groups(t.Context(), ops.Filter{})
			fixture.NoError(t, err)
			byType := map[string]ops.Group{}
			for _, g := range all.Groups {
				byType[g.Type] = g
			}
			return byType
		}
		ctx, paid := t.Context(), groups()["dead.paid"]
		req := ops.GroupRequest{Fingerprint: paid.Fingerprint, Actor: "ann", Reason: "INC-42"}
		unknown, nobody := req, req
		unknown.Fingerprint, nobody.Actor = "0123456789abcdef", ""
		for name, c := range map[string]struct{ got, want error }{
			"an unknown group": {w.api.NoteGroup(ctx, "x", unknown), ops.ErrNoGroup},
			"no fingerprint":   {w.api.NoteGroup(ctx, "x", ops.GroupRequest{Actor: "a", Reason: "r"}), ops.ErrNoGroup},
			"nobody":           {w.api.UnmuteGroup(ctx, nobody), core.ErrInvalidRequest},
			"a long note":      {w.api.NoteGroup(ctx, strings.Repeat("x", 2001), req), core.ErrInvalidRequest},
			"no UTF-8":         {w.api.NoteGroup(ctx, "\xff", req), core.ErrInvalidRequest},
			"a past time":      {w.api.MuteGroup(ctx, time.Now().Add(-time.Second), req), core.ErrInvalidRequest},
			"a far time":       {w.api.MuteGroup(ctx, time.Now().AddDate(11, 0, 0), req), core.ErrInvalidRequest},
		} {
			fixture.Check(t, errors.Is(c.got, c.want), "%s: %v, want %v", name, c.got, c.want)
		}
		dry, unknown := req, unknown
		dry.DryRun, unknown.DryRun = true, true
		fixture.NoError(t, w.api.NoteGroup(ctx, "x", dry))
		fixture.NoError(t, w.api.MuteGroup(ctx, time.Now().Add(time.Hour), dry))
		fixture.NoError(t, w.api.UnmuteGroup(ctx, dry))
		if err := w.api.NoteGroup(ctx, "x", unknown); !errors.Is(err, ops.ErrNoGroup) {
			t.Errorf("a dry run for an unknown group: %v", err)
		}
		if g := groups()["dead.paid"]; g.Muted || g.Stored.Actor != "" {
			t.Errorf("dry runs have stored %+v", g)
		}
		fixture.NoError(t, w.api.NoteGroup(ctx, "billing drops v1", req))
		fixture.NoError(t, w.api.MuteGroup(ctx, time.Now().Add(time.Hour), req))
		if g := groups(); !g["dead.paid"].Muted || g["dead.paid"].Stored.Note != "billing drops v1" ||
			g["dead.paid"].Stored.Actor != "ann" || g["dead.paid"].Dead != 1 || g["dead.sent"].Muted ||
			g["dead.sent"].Stored.Note != "" {
			t.Errorf("%+v", g)
		}
		// A mute ends when its time is over by the database's clock. On a slow machine a short time
		// may be over before the call looks at it.
		for d := 100 * time.Millisecond; ; d *= 2 {
			over := time.Now().Add(d)
			err := w.api.MuteGroup(ctx, over, req)
			if errors.Is(err, core.ErrInvalidRequest) && time.Now().After(over) {
				continue
			}
			fixture.NoError(t, err)
			break
		}
		fixture.Await(t, "the group is not muted any more", func() bool { return !groups()["dead.paid"].Muted })
		// A group without events can still be changed, because somebody has written a note on it.
		fixture.MustExec(t, w.Pool, "DELETE FROM outbox_event")
		fixture.NoError(t, w.api.UnmuteGroup(ctx, req))
	})
}
