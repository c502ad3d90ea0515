package events_test

import (
	"errors"
	"flag"
	"path/filepath"
	"testing"

	"github.com/ormoutbox/ormoutbox/contractoutbox"
	"github.com/ormoutbox/ormoutbox/examples/contracts/events"
)

var update = flag.Bool("update", false, "write docs/events")

// The documents are those of the catalog, and what the last release promised still holds. A service
// of its own calls GitBaseline, where this test reads a copy of the release's document.
func TestContracts(t *testing.T) {
	g, err := contractoutbox.New(events.Catalog, contractoutbox.Config{
		Title: "Events of the shop",
		Description: "The shop is an example: `examples/contracts` declares these events, and its test writes " +
			"these pages.",
	})
	if err != nil {
		t.Fatal(err)
	}
	docs := filepath.Join("..", "..", "..", "docs", "events")
	if *update {
		err = g.Write(docs)
	}
	if err := errors.Join(err, g.Verify(docs)); err != nil {
		t.Error(err)
	}
	baseline, err := contractoutbox.ReadBaseline("released")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Compatible(baseline); err != nil {
		t.Error(err)
	}
}
