//go:build axe

package ui_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/chromedp/chromedp"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// axe-core finds nothing wrong on any page: light and dark, wide and on a phone, details closed and
// open. `make axe` gets it.
func TestAxe(t *testing.T) {
	axe, err := os.ReadFile(filepath.Join(fixture.Root(t), ".tools", "package", "axe.min.js"))
	fixture.NoError(t, err)
	w, b := newWorld(t, testdb.SQLite(t)), newBrowser(t)
	b.do(Navigate(w.site + "shop/"))
	w.violates(b, string(axe), "an empty outbox")
	w.orders(3)
	w.Run()
	row, group := w.aRow(), w.group()
	event, err := w.api.Show(t.Context(), row)
	fixture.NoError(t, err)
	w.gaveUp(event[0].EventID)
	for _, dark := range []bool{false, true} {
		if dark {
			b.dark()
		}
		for _, width := range []int64{1280, 390} {
			b.do(EmulateViewport(width, 900))
			for _, path := range []string{
				"", "events", "events?status=dead", "events/" + row, "groups", "groups/" +
					group, "keys", "consumers", "effects",
				"httpkeys", "relays", "plans", "audit", "doctor", "nowhere", "confirm?do=redrive&row=" + row,
				"confirm?do=plan-redrive&group=" +
					group, "confirm?do=pause&topic=orders", "confirm?do=release&consumer=billing",
			} {
				b.do(Navigate(w.site + "shop/" + path))
				w.violates(b, string(axe), path)
				b.await("details are open",
					`(() => { document.querySelectorAll('details').forEach(d => d.open = true); return true; })()`)
				w.violates(b, string(axe), path+", open")
			}
		}
	}
}

func (w *world) violates(b *browser, axe, path string) {
	b.Helper()
	_, err := Run(b.ctx, Evaluate[Void](axe))
	fixture.NoError(b, err)
	found, err := Run(b.ctx, Evaluate[[]struct {
		ID    string
		Nodes []struct{ HTML, FailureSummary string }
	}](`axe.run().then(r => r.violations)`, EvalAwaitPromise))
	fixture.NoError(b, err)
	for _, v := range found {
		b.Errorf("%s: %s: %.300s %.300s", path, v.ID, v.Nodes[0].HTML, v.Nodes[0].FailureSummary)
	}
}
