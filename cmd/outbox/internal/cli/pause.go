package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// pauseRow is a pause as commands print it.
type pauseRow struct {
	All    bool       `json:"all"`
	Topic  string     `json:"topic,omitempty"`
	Tenant string     `json:"tenant_id,omitempty"`
	Since  time.Time  `json:"since"`
	Until  *time.Time `json:"until,omitempty"` // missing: until it is resumed
	Actor  string     `json:"actor"`
	Reason string     `json:"reason"`
}

// pauseList is what `outbox pauses` prints.
type pauseList struct {
	Pauses []pauseRow `json:"pauses"`
	paging
}

func pauseRowOf(p core.Pause) pauseRow {
	row := pauseRow{
		All: p.All, Topic: p.Topic, Tenant: p.Tenant, Since: p.Since, Actor: p.Actor, Reason: p.Reason,
	}
	if !p.Until.IsZero() {
		row.Until = &p.Until
	}
	return row
}

// name is how people name what is paused.
func (p pauseRow) name() string {
	switch {
	case p.All:
		return "everything"
	case p.Tenant != "":
		return "tenant " + p.Tenant
	}
	return "destination " + p.Topic
}

// text says who has paused it, since when, until when and why.
func (p pauseRow) text() string {
	until := "resumed"
	if p.Until != nil {
		until = moment(*p.Until)
	}
	return fmt.Sprintf("%s is paused by %s since %s until %s: %s", p.name(), short(p.Actor), moment(p.Since), until,
		short(p.Reason))
}

// argument is what `outbox resume` takes.
func (p pauseRow) argument() string {
	switch {
	case p.All:
		return "--all"
	case p.Tenant != "":
		return "--tenant " + shellWord(p.Tenant)
	}
	return shellWord(p.Topic)
}

// shellWord quotes a word for a shell, if it needs that.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.:@/-", r)
	}
	if strings.TrimFunc(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// target is what a command pauses or resumes.
type target struct {
	who
	all    bool
	tenant string
}

func (t *target) flags(c *cobra.Command) {
	t.who.flags(c)
	t.dryRunFlag(c, "")
	c.Flags().BoolVar(&t.all, "all", false, "every destination")
	c.Flags().Var((*selector)(&t.tenant), "tenant", "the events of one tenant")
}

// row checks the arguments and returns what they name.
func (t *target) row(args []string) (row pauseRow, err error) {
	named := len(args)
	for _, given := range []bool{t.all, t.tenant != ""} {
		if given {
			named++
		}
	}
	if named != 1 {
		return row, usage("name one topic, or --tenant, or --all for every destination")
	}
	if err := t.check(); err != nil {
		return row, err
	}
	row = pauseRow{All: t.all, Tenant: t.tenant, Actor: t.actor, Reason: t.reason}
	if len(args) > 0 {
		row.Topic = args[0]
	}
	return row, nil
}

// reach has the events that a change of a destination or a tenant concerns.
type reach struct {
	DryRun  bool      `json:"dry_run"`
	Waiting ops.Count `json:"waiting"` // open events
}

// reachOf counts the open events that a filter selects, and tells the person before the change.
func (a *app) reachOf(ctx context.Context, api *ops.API, what string, f ops.Filter, dryRun bool) (r reach, err error) {
	f.Statuses = []ops.Status{ops.StatusNew, ops.StatusRetry}
	r.DryRun = dryRun
	if r.Waiting, err = api.Count(ctx, f); err != nil || a.json {
		return r, err
	}
	word := "events wait"
	if r.Waiting.N == 1 {
		word = "event waits"
	}
	a.sayf("%s: %s %s\n", what, r.Waiting, word)
	return r, nil
}

// noteByLog says that the events of a reader of the log are not among those that wait, if some of
// them may wait. A failure of the question is no failure of the command.
func (a *app) noteByLog(ctx context.Context, db *database) {
	if waits, err := db.mayWaitInLog(ctx, a.schema, a.prefixOf()); err == nil && waits {
		a.note("events for a program that reads the log of the database are not among them: `outbox status` says how " +
			"far it is")
	}
}

// pauseChange is what `outbox pause` prints.
type pauseChange struct {
	pauseRow
	reach
}

func (a *app) pauseCommand() *cobra.Command {
	var t target
	var lasts time.Duration
	var until string
	c := &cobra.Command{
		Use:   "pause (TOPIC | --tenant ID | --all) --reason TEXT",
		Short: "Stop publishing to a destination, of a tenant or everything, on every relay",
		Long: `pause stops the events of a topic, of a tenant, or all events, on every relay, until a time or until
"outbox resume". It is stored, so it holds over restarts. Services go on publishing: the events wait
in the table, keep their order and spend no attempts. The relays follow within 3 s. They finish what
they have begun to send. Another pause of the same topic or tenant replaces the first.

--until takes a time such as 2026-11-23T18:00:00Z. --for counts from now, by the clock of this
machine. Both are compared with the clock of the database.

The command prints how many events wait. Then it asks.

Actor and reason are stored in the audit table, in the same transaction. Without a terminal it needs
--yes, or it is refused (exit code 5).`,
		Example: "  outbox pause orders --for 30m --reason 'broker upgrade'\n" +
			"  outbox pause --tenant acme --reason 'wrong prices, INC-42'\n" +
			"  outbox pause --all --reason 'restore of db1, INC-42' --yes",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			row, err := t.row(args)
			if err != nil {
				return err
			}
			req := core.PauseRequest{
				All: row.All, Topic: row.Topic, Tenant: row.Tenant, Actor: row.Actor, Reason: row.Reason,
				DryRun: t.dryRun,
			}
			if req.Until, err = a.end(lasts, until); err != nil {
				return err
			}
			if !req.Until.IsZero() {
				utc := req.Until.UTC()
				row.Until = &utc
			}
			return a.withOpsOn(c, func(ctx context.Context, db *database, api *ops.API) error {
				name := row.name()
				f := ops.Filter{Topic: req.Topic, TenantID: req.Tenant}
				a.hintUnseen(ctx, api, f)
				r, err := a.reachOf(ctx, api, "pause "+name, f, t.dryRun)
				if err != nil {
					return err
				}
				a.noteByLog(ctx, db)
				if err := a.confirm(t.who, "pause "+name+" of "+db.name+"?"); err != nil {
					return err
				}
				if err := api.Pause(ctx, req); err != nil {
					return err
				}
				row.Since = a.now().UTC()
				return a.print(pauseChange{row, r}, func() {
					switch {
					case t.dryRun && row.Until == nil:
						a.sayf("%s would be paused until it is resumed\n", name)
					case t.dryRun:
						a.sayf("%s would be paused until %s\n", name, moment(*row.Until))
					case row.Until == nil:
						a.sayf("%s is paused until `outbox resume %s --reason WHY`\n", name, row.argument())
					default:
						a.sayf("%s is paused until %s\n", name, moment(*row.Until))
					}
				})
			})
		},
	}
	t.flags(c)
	c.Flags().Var((*span)(&lasts), "for", "how long, such as 30m; 0: until it is resumed")
	c.Flags().StringVar(&until, "until", "", "until when, such as 2026-11-23T18:00:00Z")
	return c
}

// end is the time that --for or --until names. It is zero without both.
func (a *app) end(lasts time.Duration, until string) (time.Time, error) {
	switch {
	case lasts != 0 && until != "":
		return time.Time{}, usage("give --for or --until, not both")
	case lasts < 0:
		return time.Time{}, usage("--for %s: it is negative", lasts)
	case lasts > 0:
		return a.now().Add(lasts), nil
	case until == "":
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, until)
	switch {
	case err != nil:
		return time.Time{}, usage("--until: it is a time such as 2026-11-23T18:00:00Z")
	case !at.After(a.now()): // a dry run refuses it too
		return time.Time{}, usage("--until %s is not in the future", until)
	}
	return at, nil
}

// resumed is what `outbox resume` prints.
type resumed struct {
	All     bool   `json:"all"`
	Topic   string `json:"topic,omitempty"`
	Tenant  string `json:"tenant_id,omitempty"`
	Paused  bool   `json:"paused"`  // it was paused before
	Resumed bool   `json:"resumed"` // false: it was not paused, or this is a dry run
	reach
}

func (a *app) resumeCommand() *cobra.Command {
	var t target
	c := &cobra.Command{
		Use:   "resume (TOPIC | --tenant ID | --all) --reason TEXT",
		Short: "End a pause",
		Long: `resume ends the pause of a topic or a tenant, or with --all the pause of everything, which leaves the
pauses of single topics and tenants. The relays go on within 3 s. "outbox pauses" lists what is
paused. The command prints how many events wait. Then it asks.

Actor and reason are stored in the audit table, in the same transaction. Without a terminal it needs
--yes, or it is refused (exit code 5).`,
		Example: "  outbox resume orders --reason 'broker upgraded'\n" +
			"  outbox resume --tenant acme --reason 'INC-42 is over'",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			row, err := t.row(args)
			if err != nil {
				return err
			}
			return a.withOpsOn(c, func(ctx context.Context, db *database, api *ops.API) error {
				name := row.name()
				f := ops.Filter{Topic: row.Topic, TenantID: row.Tenant}
				r, err := a.reachOf(ctx, api, "resume "+name, f, t.dryRun)
				if err != nil {
					return err
				}
				a.noteByLog(ctx, db)
				if err := a.confirm(t.who, "resume "+name+" of "+db.name+"?"); err != nil {
					return err
				}
				paused, err := api.Resume(ctx, core.ResumeRequest{
					All: row.All, Topic: row.Topic, Tenant: row.Tenant, Actor: row.Actor, Reason: row.Reason,
					DryRun: t.dryRun,
				})
				if err != nil {
					return err
				}
				change := resumed{
					All: row.All, Topic: row.Topic, Tenant: row.Tenant, Paused: paused, Resumed: paused && !t.dryRun,
					reach: r,
				}
				return a.print(change, func() {
					switch {
					case paused && t.dryRun:
						a.sayf("%s would go on\n", name)
					case paused:
						a.sayf("%s goes on\n", name)
					case t.dryRun:
						a.sayf("%s is not paused: nothing would be done (`outbox pauses` lists what is)\n", name)
					default:
						a.sayf("%s was not paused: nothing was done (`outbox pauses` lists what is)\n", name)
					}
				})
			})
		},
	}
	t.flags(c)
	return c
}

func (a *app) pausesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "pauses",
		Short: "List what is paused: since when, until when, by whom and why",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withOps(c, func(ctx context.Context, api *ops.API) error {
				list, err := api.Pauses(ctx)
				if err != nil {
					return err
				}
				rows := converted(list, pauseRowOf)
				return a.print(pauseList{Pauses: rows}, func() { a.printPauses(rows) })
			})
		},
	}
}

func (a *app) printPauses(rows []pauseRow) {
	if len(rows) == 0 {
		a.sayf("nothing is paused\n")
		return
	}
	t := &table{}
	t.add("PAUSED", "SINCE", "UNTIL", "ACTOR", "REASON")
	for _, p := range rows {
		until := "resumed"
		if p.Until != nil {
			until = moment(*p.Until)
		}
		what := p.Topic
		switch {
		case p.All:
			what = "(all)"
		case p.Tenant != "":
			what = "tenant " + short(p.Tenant)
		}
		t.add(what, moment(p.Since), until, short(p.Actor), short(p.Reason))
	}
	t.write(a.Out)
}
