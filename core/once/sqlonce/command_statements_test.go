package sqlonce_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
)

// Every statement about commands as it is sent, so that a change of one is seen in a review.
func TestCommandStatementTexts(t *testing.T) {
	for name, cfg := range goldenCases {
		t.Run(name, func(t *testing.T) {
			texts, err := sqlonce.CommandTexts(cfg)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, name := range slices.Sorted(maps.Keys(texts)) {
				fmt.Fprintf(&b, "-- %s\n%s\n\n", name, texts[name])
			}
			golden(t, name+".command.sql", b.String())
		})
	}
}
