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
type pauseRow core.Pause

// pauseList is what `outbox pauses` prints.
type pauseList struct {
	Pauses []pauseRow `json:"pauses"`
	paging
}

func pauseRowOf(p core.Pause) pauseRow { return pauseRow(p) }

// name is the target of a pause in words.
func (p pauseRow) name() string {
	switch {
	case p.All:
		return "everything"
	case p.Tenant != "":
		return "tenant " + p.Tenant
	}
	return "destination " + p.Topic
}

// text describes a pause: by whom, since when, until when and why.
func (p pauseRow) text() string {
	return fmt.Sprintf("%s is paused by %s since %s until %s: %s", p.name(), short(p.Actor), moment(p.Since), p.end(),
		short(p.Reason))
}

// end is until when it is paused.
func (p pauseRow) end() string {
	if p.Until.IsZero() {
		return "resumed"
	}
	return moment(p.Until)
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
	t.dryRunFlag(c)
	c.Flags().BoolVar(&t.all, "all", false, "every destination")
	c.Flags().StringVar(&t.tenant, "tenant", "", "the events of one tenant")
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

// reachOf counts the open events that a filter selects, and prints the number before the change.
func (a *app) reachOf(ctx context.Context, api *ops.API, what string, f ops.Filter, dryRun bool) (r reach, err error) {
	f.Statuses = []ops.Status{ops.StatusNew, ops.StatusRetry}
	r.DryRun = dryRun
	if r.Waiting, err = api.Count(ctx, f); err != nil || a.json {
		return r, err
	}
	a.sayf("%s: %s\n", what, r.waits())
	return r, nil
}

// confirmReach prints the events that an action concerns, and asks.
func (a *app) confirmReach(ctx context.Context, db *database, api *ops.API, w who, action string, f ops.Filter,
) (reach, error) {
	r, err := a.reachOf(ctx, api, action, f, w.dryRun)
	if err != nil {
		return r, err
	}
	a.noteByLog(ctx, db)
	return r, a.confirm(ctx, w, a.tables(db, "outbox"), action+r.words())
}

// waits describes how many events wait.
func (r reach) waits() string {
	if r.Waiting.N == 1 {
		return r.Waiting.String() + " event waits"
	}
	return r.Waiting.String() + " events wait"
}

// words are the words for a question.
func (r reach) words() string { return " (" + r.waits() + ")" }

// noteByLog notes that the events of a reader of the log are not among the waiting ones, if some of
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
		Long: `pause stops the events of a topic, of a tenant, or all events, on every relay within 3 s, also over
restarts. Services go on publishing: events wait in their order and spend no attempts. Another pause
of the same topic or tenant replaces the first. The clock of the database decides when a pause ends.`,
		Example: "  outbox pause orders --for 30m --reason 'broker upgrade'\n" +
			"  outbox pause --tenant acme --reason 'wrong prices, INC-42'",
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
			row.Until = req.Until.UTC()
			return a.withOutbox(c, func(ctx context.Context, s *session) error {
				name := row.name()
				f := ops.Filter{Topic: req.Topic, TenantID: req.Tenant}
				a.hintUnseen(ctx, s.api, f)
				r, err := a.confirmReach(ctx, s.db, s.api, t.who, "pause "+name, f)
				if err != nil {
					return err
				}
				if err := s.api.Pause(ctx, req); err != nil {
					return err
				}
				row.Since = a.now().UTC()
				return a.print(pauseChange{row, r}, func() {
					end := moment(row.Until)
					switch {
					case row.Until.IsZero() && t.dryRun:
						end = "it is resumed"
					case row.Until.IsZero():
						end = "`outbox resume " + row.argument() + " --reason WHY`"
					}
					a.sayf("%s %s paused until %s\n", name, t.either("is", "would be"), end)
				})
			})
		},
	}
	t.flags(c)
	c.Flags().Var((*span)(&lasts), "for", "how long, such as 48h")
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
		Long: `resume ends the pause of a topic or a tenant. --all ends the pause of everything, and leaves the
pauses of single topics and tenants. outbox pauses lists them.`,
		Example: "  outbox resume orders --reason 'broker upgraded'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			row, err := t.row(args)
			if err != nil {
				return err
			}
			return a.withOutbox(c, func(ctx context.Context, s *session) error {
				name := row.name()
				f := ops.Filter{Topic: row.Topic, TenantID: row.Tenant}
				r, err := a.confirmReach(ctx, s.db, s.api, t.who, "resume "+name, f)
				if err != nil {
					return err
				}
				paused, err := s.api.Resume(ctx, core.ResumeRequest{
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
					case paused:
						a.sayf("%s %s\n", name, t.either("goes on", "would go on"))
					default:
						a.sayf("%s %s done (`outbox pauses` lists what is)\n", name,
							t.either("was not paused: nothing was", "is not paused: nothing would be"))
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
			return a.withOutbox(c, func(ctx context.Context, s *session) error {
				list, err := s.api.Pauses(ctx)
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
	printRows(a, "nothing is paused", "PAUSED|SINCE|UNTIL|ACTOR|REASON", rows,
		func(t *table, p pauseRow) {
			what := p.Topic
			switch {
			case p.All:
				what = "(all)"
			case p.Tenant != "":
				what = "tenant " + short(p.Tenant)
			}
			t.add(what, moment(p.Since), p.end(), short(p.Actor), short(p.Reason))
		})
}
