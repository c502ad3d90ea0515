package main

import (
	"strings"
	"testing"
)

func TestBalance(t *testing.T) {
	t.Parallel()
	a1, a2, b1 := sale{"o-1", "a", 1}, sale{"o-2", "a", 2}, sale{"o-3", "b", 1}
	committed := []sale{a1, a2, b1}
	e1, e2, e3 := entry{"e-1", a1}, entry{"e-2", a2}, entry{"e-3", b1}
	for name, tc := range map[string]struct {
		entries []entry
		want    result
		problem string
	}{
		"balanced":   {entries: []entry{e1, e3, e2}, want: result{Delivered: 3}},
		"duplicates": {entries: []entry{e1, e1, e3, e2, e1}, want: result{Delivered: 3, Duplicates: 2}},
		"lost":       {entries: []entry{e1, e2}, want: result{Delivered: 2, Lost: 1}, problem: "lost: order o-3"},
		"nothing":    {want: result{Lost: 3}, problem: "lost: order o-1"},
		"ghost": {
			entries: []entry{e1, e3, e2, {"e-4", sale{"o-4", "a", 2}}},
			want:    result{Delivered: 3, Ghosts: 1}, problem: "ghost: event e-4",
		},
		"other content": {
			entries: []entry{e1, e2, {"e-3", sale{"o-3", "a", 1}}},
			want:    result{Delivered: 2, Lost: 1, Ghosts: 1}, problem: "ghost: event e-3",
		},
		"second event": {
			entries: []entry{e1, e3, e2, {"e-5", b1}}, want: result{Delivered: 3, Ghosts: 1},
			problem: "ghost: event e-5",
		},
		"out of order": {
			entries: []entry{e2, e1, e3}, want: result{Delivered: 3, OutOfOrder: 1},
			problem: "a got order 1 after 2",
		},
		"late second copy": {entries: []entry{e1, e2, e1, e3}, want: result{Delivered: 3, Duplicates: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := result{Asked: len(committed)}
			got.balance(committed, tc.entries)
			w := tc.want
			if got.Committed != 3 || got.Delivered != w.Delivered || got.Lost != w.Lost || got.Ghosts != w.Ghosts ||
				got.OutOfOrder != w.OutOfOrder || got.Duplicates != w.Duplicates {
				t.Errorf("%+v, want %+v", got, w)
			}
			if got.Balanced != (tc.problem == "") || !strings.Contains(strings.Join(got.Problems, "; "), tc.problem) {
				t.Errorf("balanced %v, problems %q; want %q", got.Balanced, got.Problems, tc.problem)
			}
		})
	}
}

func TestBalanceMissesOrdersThatWereNotTaken(t *testing.T) {
	t.Parallel()
	r := result{Asked: 2}
	r.balance([]sale{{"o-1", "a", 1}}, []entry{{"e-1", sale{"o-1", "a", 1}}})
	if r.Balanced || len(r.Problems) != 1 {
		t.Errorf("balanced %v, problems %q; want one", r.Balanced, r.Problems)
	}
}
