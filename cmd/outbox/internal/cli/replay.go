package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

func (a *app) replayCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "replay",
		Short: "Publish events again that are done",
		Long: `replay publishes events again that are done, for consumers that have lost them. Each gets a new row.
The old one stays as it is. replay plan stores which events, and replay apply works that off.`,
	}, a.replayPlanCommand(), a.applyCommand(ops.ActionReplay))
}

func (a *app) replayPlanCommand() *cobra.Command {
	var f ops.Filter
	var o ops.ReplayOptions
	var w who
	c := &cobra.Command{
		Use:   "plan [ROW-ID...] --reason TEXT",
		Short: "Store which done events to replay, and change nothing yet",
		Long: `plan stores which done events to publish again, and publishes nothing; outbox replay apply works it off.
Consumers skip events that they remember. If a consumer no longer remembers one of the events, by its
declaration (outbox window), the plan is refused, because that consumer would handle the event twice.
--dedup-window stands in for consumers that declared nothing. --cause selects the events that one event
caused, such as outputs that a broker lost. More than --limit events are refused.`,
		Example: "  outbox replay plan --topic orders --since 2h --reason 'lost, INC-7'",
		RunE: func(c *cobra.Command, args []string) error {
			if err := w.check(); err != nil {
				return err
			}
			var err error
			if o.IDs, err = rowIDs(args); err != nil {
				return err
			}
			return a.withOutbox(c, func(ctx context.Context, s *session) error {
				p, err := s.api.PlanReplay(ctx, f, o)
				if errors.Is(err, ops.ErrDedupWindow) {
					err = fmt.Errorf("%w: --since selects them. --dedup-window makes what consumers have declared "+
						"only shorter; with --beyond-windows it holds, and they may handle events twice", err)
				}
				if err != nil {
					return err
				}
				a.noteUnconfirmed(ctx, s.db, p)
				return a.storePlan(ctx, s.api, p, w)
			})
		},
	}
	filterFlags(c, &f)
	w.reasonFlags(c)
	flags := c.Flags()
	flags.Var((*span)(&o.DedupWindow), "dedup-window",
		"how long consumers remember events (default: what they have declared)")
	flags.BoolVar(&o.BeyondWindows, "beyond-windows", false,
		"use --dedup-window for every consumer: some may handle events twice")
	flags.IntVar(&o.Limit, "limit", 0, "events of the plan (default: 10000, the most)")
	w.dryRunFlag(c)
	return c
}

// storePlan stores a plan that has events, and prints it.
func (a *app) storePlan(ctx context.Context, api *ops.API, p ops.Plan, w who) error {
	stored := ops.StoredPlan{Plan: p, Events: len(p.IDs)}
	if len(p.IDs) > 0 && !w.dryRun {
		var err error
		if stored, err = api.StorePlan(ctx, p, w.actor, w.reason); err != nil {
			return err
		}
	}
	if len(p.IDs) == 0 && !w.dryRun {
		a.note("nothing is stored: no such event is selected")
	}
	if len(p.IDs) == 0 {
		a.hintUnseen(ctx, api, p.Filter)
	}
	if w.dryRun && a.json {
		return a.print(dryPlan{withoutRows(stored), true}, nil)
	}
	err := a.printPlan(stored)
	if w.dryRun {
		a.note("nothing is stored: it is a dry run")
	}
	return err
}
