package settings_test

import (
	"testing"

	"github.com/ormoutbox/ormoutbox/core/internal/settings"
)

func TestCopy(t *testing.T) {
	type source struct {
		Name  string
		Count int64 // another type
		Own   bool
	}
	got := struct {
		Count int
		Name  string
		Kept  string
	}{Count: 1, Kept: "kept"}
	settings.Copy(&got, source{Name: "a", Count: 2, Own: true})
	if got.Name != "a" || got.Count != 1 || got.Kept != "kept" {
		t.Errorf("got %+v", got)
	}
}
