package cli

import (
	"context"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// rateRow is the rate of a destination as commands print it.
type rateRow core.Rate

// rateList is what `outbox rates` prints.
type rateList struct {
	Rates []rateRow `json:"rates"`
	paging
}

func rateRowOf(r core.Rate) rateRow { return rateRow(r) }

// limits describes the limit of the destination.
func (r rateRow) limits() string {
	perSecond := strconv.FormatFloat(r.PerSecond, 'f', -1, 64) + " events a second"
	inFlight := strconv.Itoa(r.InFlight) + " in flight"
	switch {
	case r.PerSecond == 0 && r.InFlight == 0:
		return "no limit"
	case r.InFlight == 0:
		return "at most " + perSecond
	case r.PerSecond == 0:
		return "at most " + inFlight
	}
	return "at most " + perSecond + " and " + inFlight
}

// rateChange is what `outbox rate` prints.
type rateChange struct {
	rateRow
	reach
	Changed bool `json:"changed"`
}

func (a *app) rateCommand() *cobra.Command {
	var w who
	var row rateRow
	var off bool
	c := &cobra.Command{
		Use:   "rate TOPIC (--per-second N | --in-flight N | --off) --reason TEXT",
		Short: "Limit what a destination gets from all relays together",
		Long: `rate limits how many events a second a destination gets, or how many are on their way to it at once.
It holds over restarts, until --off. Services go on publishing: events wait in their order and spend
no attempts. Living relays share the limit equally.`,
		Example: "  outbox rate webhooks --per-second 20 --in-flight 4 --reason 'the partner asks for it'\n" +
			"  outbox rate webhooks --off --reason 'contract changed'",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			row.Topic = args[0]
			if err := w.check(); err != nil {
				return err
			}
			if off == (row.PerSecond != 0 || row.InFlight != 0) {
				return usage("give --per-second, --in-flight or both, or --off")
			}
			return a.withOutbox(c, func(ctx context.Context, s *session) error {
				f := ops.Filter{Topic: row.Topic}
				if !off {
					a.hintUnseen(ctx, s.api, f)
				}
				r, err := a.reachOf(ctx, s.api, "rate of destination "+row.Topic, f, w.dryRun)
				if err != nil {
					return err
				}
				a.noteByLog(ctx, s.db)
				row.Since, row.Actor, row.Reason = a.now().UTC(), w.actor, w.reason
				if limited, err := isLimited(ctx, s.ob, row.Topic); err != nil {
					return err
				} else if off && !limited { // it may be misspelled
					return a.print(rateChange{row, r, false}, func() {
						a.sayf("destination %s %s done (`outbox rates` lists them)\n", row.Topic,
							w.either("had no limit: nothing was", "has no limit: nothing would be"))
					})
				}
				ask := "set destination " + row.Topic + r.words() + " to " + row.limits()
				if err := a.confirm(ctx, w, a.tables(s.db, "outbox"), ask); err != nil {
					return err
				}
				if err := s.ob.SetRate(ctx, core.RateRequest{
					Topic: row.Topic, PerSecond: row.PerSecond, InFlight: row.InFlight, Actor: w.actor,
					Reason: w.reason, DryRun: w.dryRun,
				}); err != nil {
					return err
				}
				return a.print(rateChange{row, r, !w.dryRun}, func() {
					a.sayf("destination %s %s %s\n", row.Topic, w.either("gets", "would get"), row.limits())
				})
			})
		},
	}
	w.flags(c)
	w.dryRunFlag(c)
	c.Flags().Float64Var(&row.PerSecond, "per-second", 0, "events a second, 0.001 to 1000000; 0: any number")
	c.Flags().IntVar(&row.InFlight, "in-flight", 0, "events on their way at once; 0: any number")
	c.Flags().BoolVar(&off, "off", false, "end the limits of the destination")
	return c
}

// maxRates is how many rates Rates lists at most.
const maxRates = 1000

// isLimited reports whether a destination has a rate. If there are so
// many, any destination may have one.
func isLimited(ctx context.Context, ob *core.Outbox, topic string) (bool, error) {
	all, err := ob.Rates(ctx)
	of := func(r core.Rate) bool { return r.Topic == topic }
	return len(all) >= maxRates || slices.ContainsFunc(all, of), err
}

func (a *app) ratesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rates",
		Short: "List the limits of destinations: since when, by whom and why",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withOutbox(c, func(ctx context.Context, s *session) error {
				list, err := s.ob.Rates(ctx)
				if err != nil {
					return err
				}
				page := rateList{Rates: converted(list, rateRowOf), paging: paging{More: len(list) >= maxRates}}
				return a.print(page, func() { a.printRates(page.Rates) })
			})
		},
	}
}

func (a *app) printRates(rows []rateRow) {
	orAny := func(s string) string {
		if s == "0" {
			return "any"
		}
		return s
	}
	printRows(a, "no destination has a limit", "TOPIC|PER SECOND|IN FLIGHT|SINCE|ACTOR|REASON", rows,
		func(t *table, r rateRow) {
			t.add(r.Topic, orAny(strconv.FormatFloat(r.PerSecond, 'f', -1, 64)), orAny(strconv.Itoa(r.InFlight)),
				moment(r.Since), short(r.Actor), short(r.Reason))
		})
}
