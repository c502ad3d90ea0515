package cli

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// planCommand is `redrive plan` or `discard plan`.
func (a *app) planCommand(action ops.Action) *cobra.Command {
	var f ops.Filter
	var w who
	var limit int
	c := &cobra.Command{
		Use:   "plan [ROW-ID...] --reason TEXT",
		Short: "Store which dead events to " + string(action) + ", and change nothing yet",
		Long: fmt.Sprintf(`plan stores up to 10,000 dead events, by row id or filter, and changes none of them. Events
that die later are not in the plan. outbox %s apply works it off.`, action),
		Example: fmt.Sprintf("  outbox %s plan --topic orders --reason 'schema repaired, INC-42'", action),
		RunE: func(c *cobra.Command, args []string) error {
			if err := w.check(); err != nil {
				return err
			}
			ids, err := rowIDs(args)
			if err == nil && len(ids) > 0 && !reflect.ValueOf(f).IsZero() {
				err = usage("give row ids or a filter, not both")
			}
			if err != nil {
				return err
			}
			return a.withOutbox(c, func(ctx context.Context, s *session) error {
				plan := s.api.PlanRedrive
				if action == ops.ActionDiscard {
					plan = s.api.PlanDiscard
				}
				if len(ids) > 0 {
					plan = func(ctx context.Context, _ ops.Filter, _ int) (ops.Plan, error) {
						return s.api.PlanRows(ctx, action, ids...)
					}
				}
				p, err := plan(ctx, f, limit)
				if err != nil {
					for _, id := range ids {
						if of := rowOfEvent(ctx, s.api, id); of != "" {
							a.note("no row has the id %s%s", id, of)
						}
					}
					return err
				}
				return a.storePlan(ctx, s.api, p, w)
			})
		},
	}
	filterFlags(c, &f)
	w.reasonFlags(c)
	c.Flags().IntVar(&limit, "limit", 0, "events of the plan (default: 10000, the most)")
	w.dryRunFlag(c)
	return c
}

// withoutRows is a plan as it is printed.
func withoutRows(p ops.StoredPlan) ops.StoredPlan {
	p.IDs, p.Seen = nil, nil
	return p
}

// printPlan prints a plan without its rows.
func (a *app) printPlan(p ops.StoredPlan) error {
	p = withoutRows(p)
	return a.print(p, func() {
		if p.ID != "" {
			a.sayf("plan %s is %s%s\n", p.ID, p.State, noteOf(p))
			a.sayf("stored by %s at %s: %s\n", p.Actor, moment(p.CreatedAt), p.Reason)
			if p.Version > 1 {
				a.sayf("last change at %s\n", moment(p.UpdatedAt))
			}
		}
		a.printRadius(radiusOf(p))
		if p.Position > 0 {
			a.sayf("%d worked off, %d changed", p.Position, p.Changed)
			switch p.Action {
			case ops.ActionRedrive:
				a.sayf(", %d published, %d failed again", p.Succeeded, p.Failed)
			case ops.ActionReplay:
				word := "published"
				if p.ByLog > 0 {
					word = "published or left to the reader of the log"
				}
				a.sayf(", %d %s, %d failed", p.Succeeded, word, p.Failed)
			case ops.ActionDiscard:
			}
			if n := p.Changed - p.Succeeded - p.Failed; n > 0 && p.Action != ops.ActionDiscard {
				a.sayf(", %d open when it was last looked", n)
			}
			a.sayf("\n")
			if n := p.Position - p.Changed; n > 0 {
				a.note("%s left alone: they have changed since the plan was made, or a relay publishes them",
					many(n, "event"))
			}
		}
		if p.Action == ops.ActionReplay && p.Events > 0 && !p.State.Ended() {
			a.note("it can be applied until %s: then consumers forget the first event", moment(p.Until))
		}
		if p.ByLog > 0 {
			a.note("a program that reads the log, walrelay or Debezium, publishes %s of the plan, and their replays "+
				"too. Nobody else does. outbox doctor says whether it reads", many(p.ByLog, "event"))
		}
		if p.More {
			a.note("the filter selects more events: plan again when this plan is done")
		}
		if p.State == ops.PlanStopped && p.Failed > 0 {
			a.note("outbox groups says why events failed: remove that cause first")
		}
		if p.State.Ended() && p.Failed > 0 {
			a.note("%s failed again: outbox groups says why; plan again when that cause is removed",
				many(p.Failed, "event"))
		}
		if p.ID != "" && !p.State.Ended() && !p.Running() {
			a.note("outbox %s apply %s works it off", p.Action, p.ID)
		}
	})
}

func noteOf(p ops.StoredPlan) string {
	if p.Note == "" {
		return ""
	}
	return ": " + p.Note
}

func radiusOf(p ops.StoredPlan) change {
	c := change{Action: string(p.Action), Events: p.Events, Keys: p.Keys, Topics: p.Topics}
	if p.Events > 0 {
		c.Oldest, c.Newest = &p.Oldest, &p.Newest
	}
	return c
}

// applyCommand is `redrive apply`, `discard apply` or `replay apply`.
func (a *app) applyCommand(action ops.Action) *cobra.Command {
	var o ops.RunOptions
	var w who
	long := `apply works off a stored plan, in the order of the keys. Ctrl-C pauses the plan: run apply again
to go on, after a crash half a minute later. Exit code 4: the plan was stopped, paused or cancelled, or
skipped events that have changed or that a relay is publishing.`
	if action == ops.ActionRedrive {
		long += `

It redrives 1 event, then 10, then 500 at a time, and waits until each stage is published. If too many
events fail again, the plan stops: remove the cause, and run apply again.`
	}
	if action == ops.ActionReplay {
		long += `

apply works in stages, as outbox redrive apply. If a replayed event fails, its new row becomes dead:
redrive that row.`
	}
	c := &cobra.Command{
		Use:     "apply PLAN",
		Short:   "Work off a plan that was stored",
		Long:    long,
		Example: fmt.Sprintf("  outbox %s apply 5f3c9a1b2d4e --rate 100", action),
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := w.find(); err != nil {
				return err
			}
			o.Actor, o.DryRun = w.actor, w.dryRun
			o.StopShare = stopShare(c, o.StopShare)
			if f := c.Flag("timeout"); f == nil || !f.Changed {
				a.timeout = 0 // a plan takes as long as it takes
			}
			return a.withOutbox(c, func(ctx context.Context, s *session) error {
				if w.dryRun {
					return a.wouldApply(ctx, s.api, action, args[0], o)
				}
				return a.apply(ctx, s, action, args[0], w, o)
			})
		},
	}
	w.yesFlag(c)
	w.actorFlag(c)
	w.dryRunFlag(c)
	c.Flags().Float64Var(&o.Rate, "rate", 0, "events a second at most; 0: no limit")
	if action != ops.ActionDiscard {
		c.Flags().Float64Var(&o.StopShare, "stop-share", 0.1,
			"stop if more than this share of a stage fails; 0: if one event fails")
		c.Flags().DurationVar(&o.Wait, "wait", time.Minute, "how long a stage may take")
	}
	if action == ops.ActionRedrive {
		c.Flags().BoolVar(&o.SkipDead, "skip-dead", false, "the relays have DeadPolicy SkipDead")
	}
	return c
}

// stopShare returns the share for package ops, which takes zero for the default. A zero that a
// person wrote means that no event may fail.
func stopShare(c *cobra.Command, share float64) float64 {
	if f := c.Flag("stop-share"); f != nil && f.Changed && share == 0 {
		return 1e-9
	}
	return share
}

// planToApply reads a plan, and refuses it if it cannot be applied.
func planToApply(ctx context.Context, api *ops.API, action ops.Action, id string) (ops.StoredPlan, error) {
	p, err := api.StoredPlan(ctx, id)
	switch {
	case err != nil:
		return p, err
	case p.State.Ended():
		return p, fmt.Errorf("%w: plan %s is %s; make a new one", ops.ErrPlanEnded, p.ID, p.State)
	case p.Action != action:
		return p, usage("plan %s is one to %s: outbox %[2]s apply %[1]s", p.ID, p.Action)
	}
	return p, nil
}

// wouldApply prints what a plan would work off.
func (a *app) wouldApply(ctx context.Context, api *ops.API, action ops.Action, id string, o ops.RunOptions) error {
	if _, err := planToApply(ctx, api, action, id); err != nil {
		return err
	}
	p, err := api.RunPlan(ctx, id, o)
	if err != nil {
		return afterRun(p, err)
	}
	return a.print(dryPlan{withoutRows(p), true}, func() {
		a.printRadius(radiusOf(p))
		a.sayf("plan %s would be applied: %s of %d are not worked off\n", p.ID,
			many(p.Events-p.Position, "event"), p.Events)
	})
}

func (a *app) apply(ctx context.Context, s *session, action ops.Action, id string, w who, o ops.RunOptions) error {
	p, err := planToApply(ctx, s.api, action, id)
	if err != nil {
		return err
	}
	if !a.json {
		a.printRadius(radiusOf(p))
	}
	ask := string(action) + " " + many(p.Events-p.Position, "event")
	if err := a.confirm(ctx, w, a.tables(s.db, "outbox"), ask); err != nil {
		return err
	}
	show, finish := a.planProgress(p)
	o.Progress = show
	p, err = s.api.RunPlan(ctx, id, o)
	finish()
	if p.ID == "" {
		return err
	}
	if perr := a.printPlan(p); perr != nil {
		return errors.Join(err, perr)
	}
	return afterRun(p, err)
}

// afterRun is how the command ends if RunPlan has returned p and err.
func afterRun(p ops.StoredPlan, err error) error {
	if err == nil && p.Changed < p.Position {
		return exit(ExitPartial, "%d of %d events are changed", p.Changed, p.Position)
	}
	if err != nil && (errors.Is(err, ops.ErrPlanStopped) || p.Changed > 0) {
		return exit(ExitPartial, "%d of %d events are worked off: %w", p.Position, p.Events, err)
	}
	return err
}

// planProgress shows how far a plan is, on a terminal.
func (a *app) planProgress(p ops.StoredPlan) (show func(ops.StoredPlan), finish func()) {
	add, finish := a.progress(p.Position, p.Events)
	last := p.Position
	return func(p ops.StoredPlan) { add(p.Position - last); last = p.Position }, finish
}

func (a *app) plansCommand() *cobra.Command {
	list := a.plansListCommand()
	c := group(&cobra.Command{
		Use:   "plans",
		Short: "Stored plans: list, show, pause, cancel",
		Long: `plans lists the newest plans of redrive, discard and replay. A plan is deleted 90 days after its
end.`,
		Example: "  outbox plans --json",
	}, list, a.plansShowCommand(),
		a.plansEndCommand("pause", "paused", "Stop a plan until it is applied again",
			`pause stops a plan within a few seconds, until it is applied again.`,
			func(api *ops.API) endPlan { return api.PausePlan }),
		a.plansEndCommand("cancel", "cancelled", "End a plan, so that it cannot be applied any more",
			`cancel ends a plan for good. Events that it has changed stay changed.`,
			func(api *ops.API) endPlan { return api.CancelPlan }))
	c.RunE = list.RunE
	return c
}

func (a *app) plansListCommand() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use: "list", Short: "List the newest plans", Args: cobra.NoArgs,
		Example: "  outbox plans list --json",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withOutbox(c, func(ctx context.Context, s *session) error {
				plans, err := s.api.StoredPlans(ctx, limit)
				if err != nil {
					return err
				}
				if plans == nil {
					plans = []ops.StoredPlan{}
				}
				page := planPage{Plans: plans, paging: paging{More: len(plans) == limit}}
				return a.print(page, func() { a.printPlans(page) })
			})
		},
	}
	limitFlag(c, &limit, 20, 1000)
	return c
}

// planPage is what `outbox plans` prints.
type planPage struct {
	Plans []ops.StoredPlan `json:"plans"`
	paging
}

func (a *app) printPlans(page planPage) {
	printRows(a, "no plan is stored", "PLAN|ACTION|STATE|EVENTS|WORKED OFF|FAILED AGAIN|BY|CREATED|REASON", page.Plans,
		func(t *table, p ops.StoredPlan) {
			state := string(p.State)
			if p.State == ops.PlanRunning && !p.Running() {
				state = "interrupted"
			}
			t.add(p.ID, string(p.Action), state, strconv.Itoa(p.Events), strconv.Itoa(p.Position),
				strconv.Itoa(p.Failed), p.Actor, moment(p.CreatedAt), short(p.Reason))
		})
	if page.More {
		a.note("there may be older ones: raise --limit")
	}
}

func (a *app) plansShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show PLAN", Short: "Print a plan", Args: cobra.ExactArgs(1),
		Example: "  outbox plans show 5f3c9a1b2d4e",
		RunE: func(c *cobra.Command, args []string) error {
			return a.withOutbox(c, func(ctx context.Context, s *session) error {
				p, err := s.api.StoredPlan(ctx, args[0])
				if err != nil {
					return err
				}
				return a.printPlan(p)
			})
		},
	}
}

type endPlan func(ctx context.Context, id, actor, reason string) (ops.StoredPlan, error)

// dryPlan is the output of a dry run: the plan as it is, or would be.
type dryPlan struct {
	ops.StoredPlan
	DryRun bool `json:"dry_run"`
}

func (a *app) plansEndCommand(name, ended, about, long string, of func(api *ops.API) endPlan) *cobra.Command {
	var w who
	c := &cobra.Command{
		Use: name + " PLAN --reason TEXT", Short: about, Args: cobra.ExactArgs(1),
		Long:    long,
		Example: "  outbox plans " + name + " 5f3c9a1b2d4e --reason 'the broker is slow'",
		RunE: func(c *cobra.Command, args []string) error {
			if err := w.check(); err != nil {
				return err
			}
			return a.withOutbox(c, func(ctx context.Context, s *session) error {
				p, err := s.api.StoredPlan(ctx, args[0])
				if err != nil {
					return err
				}
				if p.State.Ended() {
					return fmt.Errorf("%w: plan %s is %s", ops.ErrPlanEnded, p.ID, p.State)
				}
				left := many(p.Events-p.Position, "event")
				if !a.json {
					a.sayf("%s plan %s: it is %s, and %s of %d are not worked off\n", name, p.ID, p.State, left,
						p.Events)
				}
				if w.dryRun {
					return a.print(dryPlan{withoutRows(p), true}, func() {
						a.sayf("plan %s would be %s\n", p.ID, ended)
					})
				}
				ask := fmt.Sprintf("%s plan %s of %s", name, p.ID, left)
				if err := a.confirm(ctx, w, a.tables(s.db, "outbox"), ask); err != nil {
					return err
				}
				if p, err = of(s.api)(ctx, args[0], w.actor, w.reason); err != nil {
					return err
				}
				return a.printPlan(p)
			})
		},
	}
	w.flags(c)
	w.dryRunFlag(c)
	return c
}
