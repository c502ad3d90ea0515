package cli

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// historyList is what `outbox history` prints.
type historyList struct {
	Topic    string       `json:"topic,omitempty"`
	StepSecs float64      `json:"step_seconds"`
	Points   []historyRow `json:"points"`
}

// historyRow is a step of the history as commands print it.
type historyRow struct {
	At          time.Time `json:"at"`
	Kept        bool      `json:"kept"` // a relay wrote something
	Published   int64     `json:"published"`
	Refused     int64     `json:"refused"`
	Died        int64     `json:"died"`
	Counted     bool      `json:"counted"` // what waits was counted
	Waiting     int64     `json:"waiting"`
	Dead        int64     `json:"dead"`
	BlockedKeys int64     `json:"blocked_keys"`
	OldestSecs  float64   `json:"oldest_seconds"`
	Capped      bool      `json:"capped"` // there may be more than was counted
}

func historyRowOf(p ops.HistoryPoint) historyRow {
	return historyRow{
		At: p.At, Kept: p.Kept, Published: p.Published, Refused: p.Refused, Died: p.Died, Counted: p.Counted,
		Waiting: p.Waiting, Dead: p.Dead, BlockedKeys: p.BlockedKeys, OldestSecs: p.Oldest.Seconds(), Capped: p.More,
	}
}

func (a *app) historyCommand() *cobra.Command {
	var q ops.HistoryQuery
	c := &cobra.Command{
		Use:   "history",
		Short: "Print what relays did and what waited in the last hours or days",
		Long: `history prints what relays did and what waited, a row for each step of time. It goes back seven days,
and is a minute late. Refusals during an outage are not counted. WAITING and OLDEST are the largest
values of a step, for all topics. "-" means that no relay wrote the number.`,
		Example: "  outbox history --since 24h --topic orders",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if q.Step == 0 {
				q.Step = historyStep(q.Since)
			}
			return a.withOutbox(c, func(ctx context.Context, s *session) error {
				h, err := s.api.History(ctx, q)
				if err != nil {
					return err
				}
				list := historyList{h.Topic, h.Step.Seconds(), converted(h.Points, historyRowOf)}
				return a.print(list, func() { a.printHistory(h) })
			})
		},
	}
	c.Flags().DurationVar(&q.Since, "since", 3*time.Hour, "how far back, at most 168h")
	c.Flags().DurationVar(&q.Step, "step", 0, "time of one row, a multiple of 5m (default: for at most 37 rows)")
	c.Flags().StringVar(&q.Topic, "topic", "", "only of this topic")
	return c
}

// historyStep is the step that makes no more than 36 rows, and a whole number of steps an hour or a
// day.
func historyStep(since time.Duration) time.Duration {
	for _, minutes := range []int{5, 10, 15, 20, 30, 60, 120, 180, 240} {
		if step := time.Duration(minutes) * time.Minute; since <= 36*step {
			return step
		}
	}
	return 6 * time.Hour
}

const historyBar = 12 // characters of the longest bar

func (a *app) printHistory(h ops.History) {
	var waiting, published int64
	for i := range h.Points {
		waiting, published = max(waiting, h.Points[i].Waiting), max(published, h.Points[i].Published)
	}
	printRows(a, "nothing", "FROM|WAITING||OLDEST|DEAD|PUBLISHED||PER MINUTE|REFUSED|DIED", h.Points,
		func(t *table, p ops.HistoryPoint) {
			wait, oldest, dead := "-", "-", "-"
			if p.Counted {
				wait, oldest, dead = counted(p.Waiting, p.More), age(p.Oldest), counted(p.Dead, p.More)
			}
			done, rate, refused, died := "-", "-", "-", "-"
			if p.Kept {
				done, refused = strconv.FormatInt(p.Published, 10), strconv.FormatInt(p.Refused, 10)
				died = strconv.FormatInt(p.Died, 10)
				rate = perMinute(p.Published, min(h.Step, a.now().Sub(p.At)))
			}
			t.add(moment(p.At), wait, bar(p.Waiting, waiting), oldest, a.inRed(p.Dead > 0, dead), done,
				bar(p.Published, published), rate, a.inRed(p.Refused > 0, refused), a.inRed(p.Died > 0, died))
		})
}

// perMinute is a rate as people read it. Of a time below a minute there is none.
func perMinute(n int64, of time.Duration) string {
	if of < time.Minute {
		return "-"
	}
	rate := float64(n) / of.Minutes()
	if rate > 0 && rate < 10 {
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return strconv.FormatFloat(rate, 'f', 0, 64)
}

// bar is a bar for n, of which most is the largest. It has at least one sign for a number above 0.
func bar(n, most int64) string {
	if n <= 0 {
		return ""
	}
	return strings.Repeat("▇", max(1, int(float64(n)/float64(most)*historyBar)))
}
