package cli

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

var effectStatuses = []command.Status{
	command.StatusPending, command.StatusProcessing, command.StatusCompleted, command.StatusFailed, command.StatusDead,
	command.StatusDiscarded,
}

// effectState is the backlog of a channel.
type effectState struct {
	Channel    string  `json:"channel"`
	Pending    int64   `json:"pending"`
	Dead       int64   `json:"dead"`
	OldestSecs float64 `json:"oldest_seconds"` // how long the oldest has been due
	Capped     bool    `json:"capped"`         // there may be more than was counted
}

// effectRow is an effect as list prints it. The payload is not among its fields.
type effectRow struct {
	ID          string     `json:"id"`
	Channel     string     `json:"channel"`
	Tenant      string     `json:"tenant_id,omitempty"`
	Key         string     `json:"key"`
	Status      string     `json:"status"`
	Attempts    int        `json:"attempts"`
	LostLeases  int        `json:"lost_leases,omitempty"`
	ExternalRef string     `json:"external_ref,omitempty"`
	BusinessKey string     `json:"business_key,omitempty"`
	ErrorCode   string     `json:"error_code,omitempty"`
	Error       string     `json:"error,omitempty"`
	CreatedAt   time.Time  `json:"created_at"`
	UpdatedAt   time.Time  `json:"updated_at"`
	DoneAt      *time.Time `json:"done_at,omitempty"`
}

// effectPage is a page of `outbox effects list`.
type effectPage struct {
	Effects []effectRow `json:"effects"`
	paging
}

func effectRowOf(r command.Record) effectRow {
	row := effectRow{
		ID: r.ID, Channel: r.Channel, Tenant: r.Tenant, Key: r.Key, Status: r.Status.String(), Attempts: r.Attempts,
		LostLeases: r.LostLeases, ExternalRef: r.ExternalRef, BusinessKey: r.BusinessKey, ErrorCode: r.ErrorCode,
		Error: r.Error, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
	if !r.DoneAt.IsZero() {
		row.DoneAt = &r.DoneAt
	}
	return row
}

func (a *app) effectsCommand() *cobra.Command {
	maxDead, maxAge := int64(-1), time.Duration(0)
	c := group(&cobra.Command{
		Use:   "effects",
		Short: "Count the effects that wait, list them, and redrive or discard the dead ones",
		Long: `effects counts the effects of each channel that are neither completed nor discarded:

  pending  waits, is being executed, or will be tried again
  dead     given up: waits for a person
  oldest   how long the oldest pending effect has been due`,
		Example: "  outbox effects list --status dead",
	}, a.effectsListCommand(), a.effectsRedriveCommand(), a.effectsDiscardCommand())
	c.Args = cobra.NoArgs
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.withEffects(c, func(ctx context.Context, _ *database, q *command.Queue) error {
			list, err := q.Backlog(ctx)
			if err != nil {
				return err
			}
			var dead int64
			var oldest time.Duration
			states := converted(list, func(b command.Backlog) effectState {
				dead, oldest = dead+b.Dead, max(oldest, b.OldestAge)
				return effectStateOf(b)
			})
			if err := a.print(listing{"channels": states}, func() { a.printEffectStates(states) }); err != nil {
				return err
			}
			switch {
			case maxDead >= 0 && dead > maxDead:
				return exit(ExitUnhealthy, "%d effects are dead, more than %d", dead, maxDead)
			case maxAge > 0 && oldest > maxAge:
				return exit(ExitUnhealthy, "the oldest effect has been due for %s, longer than %s", age(oldest), maxAge)
			}
			return nil
		})
	}
	c.PersistentFlags().StringVar(&a.effectsPrefix, "effects-prefix", "", "prefix of the tables of effects")
	c.Flags().Int64Var(&maxDead, "max-dead", -1, "exit code 3 if more are dead; -1: any number")
	c.Flags().Var((*span)(&maxAge), "max-age", "exit code 3 if something waits for longer; 0: any time")
	return c
}

// withEffects runs fn with the table of effects, and the outbox of the same database with the
// prefix of --prefix.
func (a *app) withEffects(
	c *cobra.Command, fn func(ctx context.Context, db *database, q *command.Queue) error,
) error {
	return a.withOutbox(c, func(ctx context.Context, s *session) error {
		store, err := sqlcommand.New(s.db.DB, sqlcommand.Config{
			Dialect: s.db.dialect, Schema: a.schema, Prefix: a.effectsPrefix,
		})
		if err != nil {
			return usage("%w", err)
		}
		q, err := command.NewQueue(command.QueueConfig{Store: store, Outbox: s.ob})
		if err != nil {
			return err
		}
		err = fn(ctx, s.db, q)
		if err != nil && codeOf(err) == ExitFailed {
			err = s.db.withTables(ctx, kindNamed("effects"), a.schema, a.effectsPrefix, err)
		}
		return err
	})
}

func (a *app) printEffectStates(states []effectState) {
	printRows(a, "no effect waits, and none is dead", "CHANNEL|PENDING|DEAD|OLDEST", states,
		func(t *table, s effectState) {
			t.add(s.Channel, counted(s.Pending, s.Capped), a.inRed(s.Dead > 0, counted(s.Dead, s.Capped)),
				age(seconds(s.OldestSecs)))
		})
}

func (a *app) effectsListCommand() *cobra.Command {
	q := command.Query{}
	status := ""
	c := &cobra.Command{
		Use:     "list",
		Short:   "List effects of a status, without their payloads, the oldest first",
		Args:    cobra.NoArgs,
		Example: "  outbox effects list --status failed --channel mail",
		RunE: func(c *cobra.Command, _ []string) error {
			i := slices.IndexFunc(effectStatuses, func(s command.Status) bool { return s.String() == status })
			if i < 0 {
				return usage("--status %q: it is pending, processing, completed, failed, dead or discarded", status)
			}
			q.Status = effectStatuses[i]
			return a.withEffects(c, func(ctx context.Context, _ *database, queue *command.Queue) error {
				list, err := queue.List(ctx, q)
				if err != nil {
					return err
				}
				if len(list) == 0 {
					a.hintChannel(ctx, queue, q.Channel)
				}
				page := effectPage{Effects: converted(list, effectRowOf)}
				page.paging = pageAfter(page.Effects, q.Limit, func(r effectRow) string { return r.ID })
				return a.print(page, func() { a.printEffects(page) })
			})
		},
	}
	f := c.Flags()
	f.StringVar(&status, "status", "dead", "pending, processing, completed, failed, dead or discarded")
	f.StringVar(&q.Channel, "channel", "", "of this channel")
	f.StringVar(&q.Tenant, "tenant", "", "only of this tenant")
	f.StringVar(&q.After, "after", "", "the next page")
	limitFlag(c, &q.Limit, 100, 1000)
	complete(c, "status", converted(effectStatuses, command.Status.String)...)
	return c
}

func (a *app) printEffects(page effectPage) {
	printRows(a, "no effect", "ID|CHANNEL|TENANT|KEY|STATUS|ATTEMPTS|CREATED|CODE|ERROR", page.Effects,
		func(t *table, r effectRow) {
			t.add(r.ID, r.Channel, orDash(r.Tenant), short(r.Key), r.Status, strconv.Itoa(r.Attempts),
				moment(r.CreatedAt), orDash(r.ErrorCode), orDash(short(r.Error)))
		})
	a.notePaging(page.paging)
}

// hintChannel warns that no effect has the channel of a filter.
func (a *app) hintChannel(ctx context.Context, queue *command.Queue, channel string) {
	if channel == "" {
		return
	}
	for _, status := range effectStatuses {
		if list, err := queue.List(ctx, command.Query{Status: status, Channel: channel, Limit: 1}); err != nil ||
			len(list) > 0 {
			return
		}
	}
	a.note("no row of %sside_effect_command has the channel %q: is that its name? `outbox effects` lists them",
		a.effectsPrefix, short(channel))
}

// effectsChange is what `outbox effects redrive` and `outbox effects discard` print.
type effectsChange struct {
	DryRun  bool `json:"dry_run"`
	Effects int  `json:"effects"`
	Changed int  `json:"changed"`
}

// effectsMutation is redrive or discard of effects.
type effectsMutation struct {
	command.Query
	who
	name   string
	all    bool
	do     func(q *command.Queue, ctx context.Context, tx core.Tx, id, actor, reason string) (bool, error)
	others string // why an effect was not changed
}

func (a *app) effectsRedriveCommand() *cobra.Command {
	return a.effectsMutationCommand(
		effectsMutation{
			name: "redrive", do: (*command.Queue).Redrive,
			others: "do not exist, are completed or discarded, or are being executed",
		},
		"Have dead effects executed again, with fresh attempts",
		`redrive makes dead effects pending again, and wakes their workers. An effect may happen twice, unless
its destination knows its idempotency key. An id may also name a pending or failed effect whose event
is gone: it is executed at once.`,
		"  outbox effects redrive --all --channel mail --reason 'relay of mails repaired'")
}

func (a *app) effectsDiscardCommand() *cobra.Command {
	return a.effectsMutationCommand(
		effectsMutation{name: "discard", do: (*command.Queue).Discard, others: "are not dead"},
		"End dead effects without executing them",
		`discard ends dead effects for good. Until the retention of the queue ends, the same effect is not
written again.`,
		"  outbox effects discard --all --channel mail --tenant acme --reason 'customer left, INC-42'")
}

func (a *app) effectsMutationCommand(m effectsMutation, shortText, long, example string) *cobra.Command {
	c := &cobra.Command{
		Use:     m.name + " (ID... | --all) --reason TEXT",
		Short:   shortText,
		Long:    long,
		Example: example,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case m.all == (len(args) > 0):
				return usage("name the effects: ids, or --all with a filter")
			case len(args) > 0 && (m.Channel != "" || m.Tenant != ""):
				return usage("--channel and --tenant are for --all")
			}
			if err := m.check(); err != nil {
				return err
			}
			return a.withEffects(c, func(ctx context.Context, db *database, queue *command.Queue) error {
				return a.effectsMutate(ctx, db, queue, m, args)
			})
		},
	}
	m.flags(c)
	f := c.Flags()
	f.BoolVar(&m.all, "all", false, "everything dead that the filter selects")
	m.dryRunFlag(c)
	f.StringVar(&m.Channel, "channel", "", "of this channel")
	f.StringVar(&m.Tenant, "tenant", "", "only of this tenant")
	return c
}

// errTried rolls a transaction back.
var errTried = errors.New("this was a dry run")

// try counts which of the effects would be changed. It changes each, and rolls that back. It calls
// unknown with ids that no effect has.
func (m *effectsMutation) try(ctx context.Context, tx core.Transactor, queue *command.Queue, ids []string,
	unknown func(id string),
) (would int, err error) {
	for _, id := range ids {
		var changed bool
		err := tx.RunInTx(ctx, func(ctx context.Context, tx core.Tx) (err error) {
			if changed, err = m.do(queue, ctx, tx, id, "nobody", errTried.Error()); err != nil {
				return err
			}
			return errTried
		})
		switch {
		case errors.Is(err, command.ErrNoEffect):
			unknown(id)
		case !errors.Is(err, errTried):
			return would, err
		}
		if changed {
			would++
		}
	}
	return would, nil
}

// distinct returns ids without repetitions.
func distinct(ids []string) (unique []string) {
	for _, id := range ids {
		if !slices.Contains(unique, id) {
			unique = append(unique, id)
		}
	}
	return unique
}

func (a *app) effectsMutate(
	ctx context.Context, db *database, queue *command.Queue, m effectsMutation, ids []string,
) (err error) {
	tx := sqltx.NewTransactor(db.DB, db.dialect)
	q := m.Query
	q.Status, q.Limit = command.StatusDead, 1000
	ids = distinct(ids)
	unknown := func(id string) { a.note("no effect has the id %s", short(id)) }
	would := -1 // effects that are named and would be changed
	if m.dryRun && len(ids) > 0 {
		if would, err = m.try(ctx, tx, queue, ids, unknown); err != nil {
			return err
		}
	}
	for len(ids) == 0 || q.After != "" {
		page, err := queue.List(ctx, q)
		if err != nil {
			return err
		}
		ids = append(ids, converted(page, func(r command.Record) string { return r.ID })...)
		if len(page) < q.Limit {
			break
		}
		q.After = page[len(page)-1].ID
	}
	if len(ids) == 0 {
		a.hintChannel(ctx, queue, m.Channel)
	}
	done := effectsChange{DryRun: m.dryRun, Effects: len(ids)}
	if !a.json {
		a.sayf("%s: %s\n", m.name, many(len(ids), "effect"))
	}
	if len(ids) > 0 && !m.dryRun {
		of := tables{kindNamed("effects"), place{db.dialect, a.schema, a.effectsPrefix}, db}
		if err := a.confirm(ctx, m.who, of, m.name+" "+many(len(ids), "effect")); err != nil {
			return err
		}
		for _, id := range ids { // each in a transaction of its own: an effect locks a row that its worker wants
			var changed bool
			err = tx.RunInTx(ctx, func(ctx context.Context, tx core.Tx) (err error) {
				changed, err = m.do(queue, ctx, tx, id, m.actor, m.reason)
				return err
			})
			if errors.Is(err, command.ErrNoEffect) {
				unknown(id)
				err = nil
				continue
			}
			if err != nil {
				break
			}
			if changed {
				done.Changed++
			}
		}
	}
	perr := a.print(done, func() {
		if !m.dryRun {
			a.sayf("%s changed\n", many(done.Changed, "effect"))
		}
	})
	switch {
	case err != nil && done.Changed > 0:
		return exit(ExitPartial, "%d of %d effects are changed; repeat the command for the others: %w", done.Changed,
			done.Effects, err)
	case err != nil:
		return err
	case would >= 0 && would < done.Effects:
		return exit(ExitPartial, "%d of %d effects would be changed: the others %s", would, done.Effects, m.others)
	case !m.dryRun && done.Changed < done.Effects:
		return exit(ExitPartial, "%d of %d effects are changed: the others %s", done.Changed, done.Effects, m.others)
	}
	return perr
}
