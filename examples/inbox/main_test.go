package main

import (
	"bytes"
	"testing"
)

func TestProgram(t *testing.T) {
	for _, name := range []string{"sql", "gorm", "bun", "ent"} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := run(t.Context(), &out, name, t.TempDir()); err != nil {
				t.Fatal(err)
			}
			want := name + ": ada has 4200, bob has 100, 2 events of credits, 1 parked, 3 in the poison queue\n"
			if out.String() != want {
				t.Errorf("printed %q, want %q", &out, want)
			}
		})
	}
}
