package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// A person sees what relays did in the last hours, and steps of which nothing is known.
func TestHistory(t *testing.T) {
	migrated(t, func(w *world) {
		w.require(w.run("history"), ExitOK, "PER MINUTE")
		repo, err := sqloutbox.New(w.open(), sqloutbox.Config{Dialect: w.dialect})
		must(w, err)
		_, err = repo.AddHistory(w.Context(), []core.HistoryCounts{
			{Topic: "orders", Published: 1234, Refused: 17, Died: 3}, {Topic: "mails", Published: 5},
		})
		must(w, err)
		must(w, repo.SetHistory(w.Context(), core.Backlog{Pending: 10_000, More: true, OldestAge: 90 * time.Second}))
		w.require(w.run("history"), ExitOK, "10000+", strings.Repeat("▇", historyBar), "1m30s", "1239", "17", "3")
		var all historyList
		if w.json(&all, "history"); len(all.Points) != 37 || all.StepSecs != 300 {
			w.Errorf("the history has %d points of %v s", len(all.Points), all.StepSecs)
		}
		var sum historyRow
		for i, p := range all.Points {
			sum.Published, sum.Refused, sum.Died = sum.Published+p.Published, sum.Refused+p.Refused, sum.Died+p.Died
			if (p.Published > 0) != p.Kept || i > 0 && p.At.Sub(all.Points[i-1].At) != 5*time.Minute {
				w.Errorf("point %d is %+v", i, p)
			}
			if p.Counted && (p.Waiting != 10_000 || !p.Capped || p.OldestSecs != 90) {
				w.Errorf("what waits is %+v", p)
			}
		}
		if sum != (historyRow{Published: 1239, Refused: 17, Died: 3}) {
			w.Errorf("the history adds up to %+v", sum)
		}
		w.json(&all, "history", "--topic", "mails", "--since", "168h")
		if n := len(
			all.Points,
		); n != 29 || all.Topic != "mails" || all.StepSecs != 6*3600 ||
			all.Points[n-1].Published != 5 {
			w.Errorf("the history of a topic is %+v", all)
		}
		w.require(w.run("history", "--since", "169h"), ExitUsage, "--since 169h0m0s is not from 5m0s to 168h0m0s")
		w.require(w.run("history", "--step", "7m"), ExitUsage, "--step 7m0s is no multiple of 5m")
		w.exec("DROP TABLE outbox_history")
		if r := w.run("history"); r.code == ExitOK || !strings.Contains(r.err, "outbox_history") {
			w.Errorf("without the table: %d %s%s", r.code, r.out, r.err)
		}
	})
}
