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
		Long: `plan freezes the done events with these row ids, or those that the filter selects, and stores them.
It prints how many there are, how old they are, and where they go. Rows that are replays themselves
are passed over. outbox replay apply works the plan off.

A consumer that remembers an event skips its replay. Consumers declare how long they remember events
(outbox window). If one of the events was done longer ago than a consumer of its topic remembers, nothing is
stored, because that consumer would handle the event a second time. --dedup-window says how long the
consumers remember where none has declared it; elsewhere it only makes the time shorter.
--beyond-windows makes it hold everywhere. The audit then names the consumers that get events twice.

--cause selects what one event caused. A consumer skips an event that is replayed to it, so outputs that
its broker lost come again this way: in the database of the consumer, with the id of the input.

If more than --limit events are selected, nothing is stored either. Of events that are read from the
log of PostgreSQL it says how many walrelay has not confirmed yet: their replay is a second copy.`,
		Example: "  outbox replay plan --topic orders --since 2h --reason 'lost, INC-7'\n" +
			"  outbox replay plan --cause 0192f1c2-... --reason 'outputs lost, INC-8'\n" +
			"  outbox replay plan 0192f1c2-... --dedup-window 168h --dry-run",
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
		"how long the consumers remember an event (default: what they declared)")
	flags.BoolVar(&o.BeyondWindows, "beyond-windows", false,
		"--dedup-window holds where a consumer has declared a shorter time")
	flags.IntVar(&o.Limit, "limit", 0, "events of the plan, up to 10000 (default: 10000)")
	w.dryRunFlag(c, "print what the plan would have, and store nothing")
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
