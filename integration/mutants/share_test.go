package main

import (
	"fmt"
	"testing"
)

// Ten shares have every mutant once. What a share tries beyond that are mutants of changed packages,
// each time others.
func TestShares(t *testing.T) {
	var mutants []mutant
	for i := range 95 {
		folder := "core"
		if i%5 == 0 {
			folder = "inbox"
		}
		mutants = append(mutants, mutant{name: fmt.Sprint(i), files: []filePatch{{path: folder + "/x.go"}}})
	}
	tried, again := map[string]int{}, map[string]bool{}
	for k := 1; k <= 10; k++ {
		s := share{k, 10}
		own := s.choose(mutants, func(string) bool { return false }, 12)
		for _, m := range own {
			tried[m.name]++
		}
		all := s.choose(mutants, func(folder string) bool { return folder == "inbox" }, 12)
		if len(all) != 12 {
			t.Errorf("share %s has %d mutants, not 12", &s, len(all))
		}
		for _, m := range all[len(own):] {
			again[m.name] = true
			if m.files[0].path != "inbox/x.go" {
				t.Errorf("share %s has %s of a package that did not change", &s, m.name)
			}
		}
	}
	for _, m := range mutants {
		if tried[m.name] != 1 {
			t.Errorf("ten shares have mutant %s %d times", m.name, tried[m.name])
		}
	}
	if len(again) < 10 {
		t.Errorf("ten shares tried only %d mutants of the changed package beyond their own", len(again))
	}
}

func TestShareIsParsed(t *testing.T) {
	for text, ok := range map[string]bool{
		"3/10": true, "1/1": true, "0/10": false, "11/10": false, "3": false, "": false,
	} {
		var s share
		if err := s.Set(text); (err == nil) != ok {
			t.Errorf("Set(%q): %v", text, err)
		}
	}
}
