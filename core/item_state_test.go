package core

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// The code has the same transitions as the table in the documentation.
func TestItemTransitionsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/how-it-works.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, tr := range itemTransitions {
		want = append(want, fmt.Sprintf("| %s | %s | %s |", tr.from, tr.to, tr.when))
	}
	var got []string
	_, table, ok := strings.Cut(string(page), "| from | to | when |\n|---|---|---|\n")
	if !ok {
		t.Fatal("docs/how-it-works.md has no table of transitions")
	}
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		got = append(got, strings.TrimSpace(line))
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("the page lacks\n%s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("the page has\n%s\nand the code does not", line)
		}
	}
}

// Every state can be reached and left. No state comes twice in a life.
func TestItemTransitionsEnd(t *testing.T) {
	reached := map[itemState]bool{itemNew: true}
	left := map[itemState]bool{itemGone: true}
	for _, tr := range itemTransitions {
		if tr.from >= tr.to {
			t.Errorf("%s to %s goes back", tr.from, tr.to)
		}
		if !reached[tr.from] {
			t.Errorf("%s is left and never reached", tr.from)
		}
		reached[tr.to], left[tr.from] = true, true
	}
	for s := range itemStates {
		if !reached[s] || !left[s] {
			t.Errorf("%s: reached %t, left %t", s, reached[s], left[s])
		}
		if s != itemNew && s != itemGone && !itemMoves[s][itemGone] {
			t.Errorf("an item that is %s cannot be given up", s)
		}
	}
}
