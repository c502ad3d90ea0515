package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// windowRow is the deduplication window of a consumer as commands print it.
type windowRow struct {
	Topic    string    `json:"topic"`
	Consumer string    `json:"consumer"`
	Keep     string    `json:"keep"` // such as "168h0m0s", or "forever"
	Since    time.Time `json:"since"`
	Actor    string    `json:"actor"`
	Reason   string    `json:"reason"`
}

// windowChange is what `outbox window declare` and `outbox window withdraw` print.
type windowChange struct {
	windowRow
	DryRun bool `json:"dry_run"`
	// Before is what the consumer had declared. Null: nothing.
	Before *windowRow `json:"before"`
}

// windowList is what `outbox window list` prints.
type windowList struct {
	Windows []windowRow `json:"windows"`
	paging
}

// declaredWindow returns what a consumer of a topic has declared, or nil.
func declaredWindow(ctx context.Context, api *ops.API, topic, consumer string) (*windowRow, error) {
	all, err := api.Windows(ctx)
	for _, w := range all {
		if w.Topic == topic && w.Consumer == consumer {
			row := windowRowOf(w)
			return &row, err
		}
	}
	return nil, err
}

func windowRowOf(w ops.Window) windowRow {
	return windowRow{w.Topic, w.Consumer, (*keep)(&w.Keep).String(), w.Since, w.Actor, w.Reason}
}

// keep is the value of --keep.
type keep time.Duration

func (k *keep) Set(text string) error {
	if text == "forever" {
		*k = keep(ops.Forever)
		return nil
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return errors.New("it is a duration such as 168h, or forever")
	case d <= 0:
		return fmt.Errorf("%s is not more than 0", d)
	}
	*k = keep(d)
	return nil
}

func (k *keep) String() string {
	if *k == 0 {
		return ""
	}
	if time.Duration(*k) == ops.Forever {
		return "forever"
	}
	return time.Duration(*k).String()
}

func (k *keep) Type() string { return "duration" }

func (a *app) windowCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "window",
		Short: "Declare for how long consumers recognise copies: the limit of every replay",
		Long: `window declares, lists and withdraws the deduplication windows of consumers: how long a consumer of a
topic recognises the copies of an event, counted from when the event was published. It is the
Retention of the consumer's inbox, less the time that a message can be on its way. outbox replay plan
refuses events that a consumer of their topic has forgotten.`,
	}, a.windowDeclareCommand(), a.windowListCommand(), a.windowWithdrawCommand())
}

func (a *app) windowDeclareCommand() *cobra.Command {
	var w who
	var remembers keep
	c := &cobra.Command{
		Use:   "declare TOPIC CONSUMER --keep DURATION --reason TEXT",
		Short: "Store how long a consumer of a topic recognises copies",
		Long: `declare stores how long a consumer recognises copies of an event of the topic. The consumer is the
name of its inbox, or any other name. --keep forever is for a consumer that never forgets.`,
		Example: "  outbox window declare orders search --keep 168h --reason 'its inbox keeps 8 days'",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := w.check(); err != nil {
				return err
			}
			req := ops.WindowRequest{
				Topic: args[0], Consumer: args[1], Keep: time.Duration(remembers), Actor: w.actor, Reason: w.reason,
				DryRun: w.dryRun,
			}
			if req.Keep == 0 {
				return usage("--keep is missing: how long does the consumer remember an event, such as 168h?")
			}
			row := windowRow{req.Topic, req.Consumer, remembers.String(), a.now().UTC(), req.Actor, req.Reason}
			remembers := fmt.Sprintf("consumer %s remembers events of %s: %s", row.Consumer, row.Topic, row.Keep)
			return a.changeWindow(c, w, row, "store that "+remembers+",", w.either("", "would be stored: ")+remembers,
				func(ctx context.Context, api *ops.API) error {
					err := api.DeclareWindow(ctx, req)
					if err == nil {
						a.hintUnseen(ctx, api, ops.Filter{Topic: req.Topic})
					}
					return err
				})
		},
	}
	w.flags(c)
	w.dryRunFlag(c)
	c.Flags().Var(&remembers, "keep", "how long the consumer remembers an event, or forever")
	return c
}

// changeWindow prints what a consumer has declared, asks, and changes it by do. It then prints
// done, and the window as it is.
func (a *app) changeWindow(c *cobra.Command, w who, row windowRow, ask, done string,
	do func(ctx context.Context, api *ops.API) error,
) error {
	return a.withOutbox(c, func(ctx context.Context, s *session) error {
		before, err := declaredWindow(ctx, s.api, row.Topic, row.Consumer)
		if err != nil {
			return err
		}
		text := "nothing is declared"
		if before != nil {
			text = fmt.Sprintf("%s is declared since %s by %s (%s)", before.Keep, moment(before.Since),
				short(before.Actor), short(before.Reason))
		}
		if !a.json {
			a.sayf("consumer %s of %s: %s\n", row.Consumer, row.Topic, text)
		}
		if err := a.confirm(ctx, w, a.tables(s.db, "outbox"), ask); err != nil {
			return err
		}
		if err := do(ctx, s.api); err != nil {
			return err
		}
		return a.print(windowChange{row, w.dryRun, before}, func() { a.sayf("%s\n", done) })
	})
}

func (a *app) windowListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List how long consumers recognise copies: since when, by whom and why",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withOutbox(c, func(ctx context.Context, s *session) error {
				list, err := s.api.Windows(ctx)
				if err != nil {
					return err
				}
				rows := converted(list, windowRowOf)
				return a.print(windowList{Windows: rows}, func() { a.printWindows(rows) })
			})
		},
	}
}

func (a *app) printWindows(rows []windowRow) {
	printRows(a, "no consumer has declared a window", "TOPIC|CONSUMER|KEEP|SINCE|ACTOR|REASON", rows,
		func(t *table, r windowRow) {
			t.add(r.Topic, r.Consumer, r.Keep, moment(r.Since), short(r.Actor), short(r.Reason))
		})
}

func (a *app) windowWithdrawCommand() *cobra.Command {
	var w who
	c := &cobra.Command{
		Use:   "withdraw TOPIC CONSUMER --reason TEXT",
		Short: "Forget the window of a consumer that reads the topic no longer",
		Long: `withdraw removes the declaration of a consumer. Replays of the topic then follow the other consumers,
or --dedup-window.`,
		Example: "  outbox window withdraw orders search --reason 'search reads the archive now'",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := w.check(); err != nil {
				return err
			}
			req := ops.WindowRequest{
				Topic: args[0], Consumer: args[1], Actor: w.actor, Reason: w.reason, DryRun: w.dryRun,
			}
			row := windowRow{
				Topic: req.Topic, Consumer: req.Consumer, Since: a.now().UTC(), Actor: req.Actor, Reason: req.Reason,
			}
			of := fmt.Sprintf("the window of consumer %s of %s", req.Consumer, req.Topic)
			return a.changeWindow(c, w, row, "withdraw "+of, of+w.either(" is", " would be")+" withdrawn",
				func(ctx context.Context, api *ops.API) error {
					there, err := api.WithdrawWindow(ctx, req)
					if err == nil && !there {
						err = fmt.Errorf("consumer %s has declared no window of %s: `outbox window list`", req.Consumer,
							req.Topic)
					}
					return err
				})
		},
	}
	w.flags(c)
	w.dryRunFlag(c)
	return c
}
