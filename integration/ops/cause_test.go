package ops_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// caused publishes an event with a cause, for each topic a row.
func (w *world) caused(cause string, topics ...string) (id string) {
	w.T.Helper()
	id = core.NewEventID()
	var events []core.Event
	for _, topic := range topics {
		e := core.Event{ID: id, Type: "happened", Topic: topic}
		if cause != "" {
			e.Headers = map[string]string{core.HeaderCausationID: cause}
		}
		events = append(events, e)
	}
	w.Publish(events...)
	return id
}

// wantChain compares the events of a chain with the wanted ones, and looks for parts of its text.
func wantChain(t *testing.T, c ops.Chain, causes, caused []string, text ...string) {
	t.Helper()
	ids := func(all []ops.Event) (ids []string) {
		for _, e := range all {
			ids = append(ids, e.EventID+" "+e.Topic)
		}
		return ids
	}
	fixture.Check(t, slices.Equal(ids(c.Causes), causes), "causes %q, want %q", ids(c.Causes), causes)
	got := ids(c.Caused)
	slices.Sort(got)
	slices.Sort(caused)
	fixture.Check(t, slices.Equal(got, caused), "caused %q, want %q", got, caused)
	for _, part := range text {
		fixture.Check(t, strings.Contains(c.Text, part), "%q is not in %s", part, c.Text)
	}
}

// The chain of an event is walked up and down as far as the table has rows.
func TestChain(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db, core.Config{})
		chain := func(id string) ops.Chain {
			t.Helper()
			c, err := w.api.Chain(t.Context(), id)
			fixture.NoError(t, err)
			return c
		}
		first := w.caused("", "orders")
		second := w.caused(first, "bills", "mails")
		third := w.caused(second, "orders")
		other := w.caused(first, "orders")
		at := func(id, topic string) string { return id + " " + topic }
		all := []string{at(second, "bills"), at(second, "mails"), at(third, "orders"), at(other, "orders")}

		wantChain(t, chain(first), nil, all, "The chain begins with event "+first, "ends after 4 rows")
		up := chain(third)
		wantChain(t, up, []string{up.Causes[0].EventID + " " + up.Causes[0].Topic, at(first, "orders")}, nil,
			"The chain begins with event "+first, "nothing that "+third)
		fixture.Check(t, up.Causes[0].EventID == second, "its cause is %s", up.Causes[0].EventID)
		wantChain(t, chain(strings.ToUpper(first)), nil, all, "")

		// Of a cause of another database the table has no row, and what it caused here.
		elsewhere := core.NewEventID()
		here := w.caused(elsewhere, "orders")
		wantChain(t, chain(here), nil, nil, "ends at "+elsewhere+", of which it has no row")
		wantChain(t, chain(elsewhere), nil, []string{at(here, "orders")}, "ends at "+elsewhere)
		command := w.caused("QuoteAccepted:018f", "orders")
		wantChain(t, chain("QuoteAccepted:018f"), nil, []string{at(command, "orders")}, "a command")

		// Explain has the chain of each event that has one.
		x := w.explain(first)
		fixture.Must(t, x.Chain != nil, "no chain")
		wantChain(t, *x.Chain, nil, all)
		fixture.Check(t, w.explain(w.caused("", "orders")).Chain == nil, "an event alone has a chain")

		// A replay is no event of its own.
		w.drain()
		p, err := w.api.PlanReplay(t.Context(), ops.Filter{Cause: first}, ops.ReplayOptions{DedupWindow: time.Hour})
		fixture.Must(t, err == nil && len(p.IDs) == 3, "planned %+v, %v", p, err)
		_, err = w.api.PlanReplay(t.Context(), ops.Filter{Cause: first}, ops.ReplayOptions{})
		fixture.WantError(t, err, core.ErrInvalidRequest)
		_, err = w.api.PlanReplay(t.Context(), ops.Filter{Cause: first}, ops.ReplayOptions{DedupWindow: 1})
		fixture.WantError(t, err, ops.ErrDedupWindow)
		for _, id := range []string{"", "a\x00", strings.Repeat("x", 256)} {
			_, err = w.api.Chain(t.Context(), id)
			fixture.WantError(t, err, core.ErrInvalidRequest)
		}
	})
}

// A walk ends at a circle, which only people can make, and at MaxChain.
func TestChainEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testdb.SQLite(t), core.Config{})
	a, b := core.NewEventID(), core.NewEventID()
	w.Publish(core.Event{ID: a, Type: "t", Headers: map[string]string{core.HeaderCausationID: b}},
		core.Event{ID: b, Type: "t", Headers: map[string]string{core.HeaderCausationID: a}})
	c, err := w.api.Chain(t.Context(), a)
	fixture.NoError(t, err)
	fixture.Check(t, !c.More && strings.Contains(c.Text, "a circle") && len(c.Causes) == 1, "%+v", c)

	at, ids := "", []string{}
	for range ops.MaxChain + 2 {
		at = w.caused(at, "orders")
		ids = append(ids, at)
	}
	for i, want := range map[int]string{0: "Downwards are more", ops.MaxChain + 1: "The causes are more"} {
		c, err := w.api.Chain(t.Context(), ids[i])
		fixture.NoError(t, err)
		fixture.Check(t, c.More && strings.Contains(c.Text, want) && len(c.Causes)+len(c.Caused) == ops.MaxChain,
			"%s: %d and %d of %s", want, len(c.Causes), len(c.Caused), c.Text)
	}
	c, err = w.api.Chain(t.Context(), ids[1])
	fixture.Check(t, err == nil && !c.More && len(c.Caused) == ops.MaxChain, "%d, %t, %v", len(c.Caused), c.More, err)
}
