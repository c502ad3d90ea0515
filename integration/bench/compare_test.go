package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A ratio is the median of the ratios within the rounds. Figures without a partner are left out.
func TestCompare(t *testing.T) {
	dir := t.TempDir()
	for name, values := range map[string][]Value{"before": {100, 200, 50}, "present": {102, 100, 51}} {
		for n, v := range values {
			s := &Section{Name: "drain"}
			table := s.table("Ordered", Column{"events/s", Count}, Column{"share", Ratio}, Column{"lag", Micros})
			table.row("ours", 1).Values = []Value{v, v, none}
			if name == "present" {
				table.row("new", 1).Values = []Value{v, v, v}
			}
			text, err := json.Marshal(Report{Sections: []*Section{s}})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d.json", name, n)), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	var out strings.Builder
	if err := compare(dir, &out); err != nil {
		t.Fatal(err)
	}
	want := "present / before, median of 3 rounds:\n   1.020  drain: Ordered: ours: events/s\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	if err := compare(t.TempDir(), &out); err == nil {
		t.Error("an empty folder was compared")
	}
}
