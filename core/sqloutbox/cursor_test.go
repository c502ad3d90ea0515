package sqloutbox

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

func TestCursors(t *testing.T) {
	var c cursors
	now := time.Now()
	all := filter{}
	starts := func(f filter, at time.Time, topics []string, since []int64) {
		t.Helper()
		gotTopics, gotSince := c.partial(f, at)
		if !slices.Equal(gotTopics, topics) || !slices.Equal(gotSince, since) {
			t.Errorf("a claim starts at %v %v, want %v %v", gotTopics, gotSince, topics, since)
		}
	}
	starts(all, now, nil, nil) // nothing is known

	claimed := func(part int, rows map[string]topicRows, left bool) { c.claimed(all, rows, part, left) }
	claimed(3, map[string]topicRows{"b": {2, 7}, "a": {1, 6}}, false)
	const took = 100 * time.Millisecond
	c.passed(all, now, took, 1, wastedEntries)
	starts(all, now, nil, nil)
	c.passed(all, now, took, 1, 1+wastedEntries)
	starts(all, now, []string{"a", "b"}, []int64{6, 7})
	starts(filter{except: []string{"b"}}, now, nil, nil) // no pass with this filter
	c.passed(filter{except: []string{"b"}}, now, took, 1, 1+wastedEntries)
	starts(filter{except: []string{"b"}}, now, []string{"a"}, []int64{6})
	only := filter{only: []string{"b", "c"}}
	c.passed(only, now.Add(time.Hour), took, 1, 1+wastedEntries)
	starts(only, now.Add(time.Hour), []string{"b"}, []int64{7})
	if c.rested(all, now.Add(passRest*took-1)) {
		t.Error("a full pass may follow before it has rested")
	}
	if !c.rested(all, now.Add(passRest*took)) {
		t.Error("a full pass may not follow after it has rested")
	}
	starts(all, now.Add(passRest*took-1), []string{"a", "b"}, []int64{6, 7})
	starts(all, now.Add(passRest*took), nil, nil)

	c.passed(all, now, 10*time.Millisecond, 1, 1+wastedEntries) // its rest is shorter than a second
	starts(all, now.Add(passAge-1), []string{"a", "b"}, []int64{6, 7})
	starts(all, now.Add(passAge), nil, nil)

	claimed(3, map[string]topicRows{"a": {2, 3}}, false) // late rows, and no more of them
	starts(all, now, []string{"a", "b"}, []int64{6, 7})
	claimed(3, map[string]topicRows{"a": {3, 3}}, false) // there may be more
	starts(all, now, []string{"a", "b"}, []int64{3, 7})
	claimed(3, map[string]topicRows{"b": {1, 4}}, true) // one was too large
	starts(all, now, []string{"a", "b"}, []int64{3, 4})
	if since := c.of([]string{"b", "a"}); !slices.Equal(since, []int64{4, 3}) {
		t.Errorf("cursors of b and a: %v", since)
	}
	if since := c.of([]string{"b", "c"}); since != nil {
		t.Errorf("cursors of b and c: %v, want none", since)
	}

	// A pass that fails because it takes too long is not repeated by every claim.
	later := now.Add(time.Minute)
	starts(all, later, nil, nil)
	c.failed(all, later, slowPass-1)
	starts(all, later, nil, nil)
	c.failed(all, later, time.Second)
	starts(all, later.Add(passRest*time.Second-1), []string{"a", "b"}, []int64{3, 4})
	starts(all, later.Add(passRest*time.Second), nil, nil)

	// A pass that takes nothing cannot tell how much it read for nothing.
	c.passed(all, later, slowPass, 0, 0)
	starts(all, later, []string{"a", "b"}, []int64{3, 4})
	c.passed(all, later, slowPass-1, 0, 0)
	starts(all, later, nil, nil)
	c.passed(all, later, slowPass, 0, 0)
	starts(all, later, nil, nil)
	c.failed(all, later, time.Second)

	// A claim of all topics looks for others between those of the last one.
	if known := c.known(all); !slices.Equal(known, []string{"", "b"}) {
		t.Errorf("a claim knows of %q, want b", known)
	}
	if known := c.known(filter{only: []string{"a"}}); known != nil {
		t.Errorf("a claim of topic a looks for topics at %q", known)
	}

	// After the pause of a tenant, its rows may be behind the cursors.
	c.follow(nil)
	starts(all, later, []string{"a", "b"}, []int64{3, 4})
	c.follow([]string{"t"})
	starts(all, later, nil, nil)
	claimed(3, map[string]topicRows{"a": {1, 6}}, false)
	c.passed(all, later, took, 1, 1+wastedEntries)
	c.follow([]string{"t"})
	starts(all, later, []string{"a"}, []int64{6})
	c.follow(nil)
	starts(all, later, nil, nil)
	if since := c.of([]string{"a"}); since != nil {
		t.Errorf("cursor of a: %v, want none", since)
	}

	for i := range 2 * maxPasses {
		c.passed(filter{only: []string{string(rune('a' + i))}}, now, took, 1, 1+wastedEntries)
	}
	if len(c.passes) > maxPasses {
		t.Errorf("%d passes are remembered", len(c.passes))
	}
}

func TestUnorderedRowsInTurns(t *testing.T) {
	rows := unorderedRows{}
	for i, r := range []struct {
		topic string
		due   int64
	}{{"a", 5}, {"b", 9}, {"a", 1}, {"b", 2}, {"a", 1}, {"c", 7}} {
		rows.rows = append(rows.rows, core.Claimed{
			ID: core.RowID{byte(9 - i)}, KeySeq: int64(i), Event: core.Event{Topic: r.topic},
		})
		rows.due = append(rows.due, r.due)
	}
	taken := rows.inTurns()
	var got []int64
	for _, r := range rows.rows {
		got = append(got, r.KeySeq)
	}
	if want := []int64{4, 3, 5, 2, 1, 0}; !slices.Equal(got, want) {
		t.Errorf("the rows are in the order %v, want %v", got, want)
	}
	if want := map[string]topicRows{"a": {3, 5}, "b": {2, 9}, "c": {1, 7}}; !maps.Equal(taken, want) {
		t.Errorf("taken were %v, want %v", taken, want)
	}
}
