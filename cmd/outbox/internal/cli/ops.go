package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// withOps runs fn with the operator's API of the database.
func (a *app) withOps(c *cobra.Command, fn func(ctx context.Context, api *ops.API) error) error {
	return a.withOpsOn(c, func(ctx context.Context, _ *database, api *ops.API) error { return fn(ctx, api) })
}

// withOpsOn is withOps for a command that names the database.
func (a *app) withOpsOn(c *cobra.Command, fn func(ctx context.Context, db *database, api *ops.API) error) error {
	return a.withOutbox(c, func(ctx context.Context, db *database, ob *core.Outbox) error {
		api, err := ops.New(ob)
		if err != nil {
			return err
		}
		return fn(ctx, db, api)
	})
}

// withOutbox runs fn with the outbox of the database.
func (a *app) withOutbox(
	c *cobra.Command, fn func(ctx context.Context, db *database, ob *core.Outbox) error,
) error {
	return a.withOutboxOf(c, core.BlockKey, fn)
}

// withOutboxOf is withOutbox for relays that have another DeadPolicy.
func (a *app) withOutboxOf(
	c *cobra.Command, policy core.DeadPolicy, fn func(ctx context.Context, db *database, ob *core.Outbox) error,
) error {
	return a.withDatabase(c, func(ctx context.Context, db *database) error {
		ob, err := a.outbox(db, policy)
		if err != nil {
			return err
		}
		err = fn(ctx, db, ob)
		switch {
		case codeOf(err) != ExitFailed:
			return err
		case errors.Is(err, core.ErrInvalidRequest):
			return usage("%w", err)
		case errors.Is(err, ops.ErrNoPlan):
			return fmt.Errorf("%w: `outbox plans` lists them", err)
		case lacksTables(err):
			return db.withTables(ctx, kinds[0], a.schema, a.prefix, err)
		}
		return err
	})
}

// hintUnseen tells the person that no event in the table has a name that a command was given,
// because it may be misspelled. A failure of the query does not fail the command.
func (a *app) hintUnseen(ctx context.Context, api *ops.API, f ops.Filter) {
	for _, name := range []struct {
		what, value, hint string
		filter            ops.Filter
	}{
		{"topic", f.Topic, "is that its name?", ops.Filter{Topic: f.Topic}},
		{"tenant", f.TenantID, "is that its name?", ops.Filter{TenantID: f.TenantID}},
		{"type", f.Type, "is that its name?", ops.Filter{Type: f.Type}},
		{"failure group", f.Fingerprint, "`outbox groups --muted` lists them", ops.Filter{Fingerprint: f.Fingerprint}},
	} {
		if name.value == "" {
			continue
		}
		page, err := api.List(ctx, ops.ListQuery{Filter: name.filter, Limit: 1})
		if err != nil {
			return
		}
		if len(page.Events) == 0 && page.Next == "" {
			a.note("no event in the table has the %s %q: %s", name.what, short(name.value), name.hint)
		}
	}
}

// filterFlags are those of ops.Filter.
func filterFlags(c *cobra.Command, f *ops.Filter) {
	c.Flags().Var((*selector)(&f.Topic), "topic", "only events of this topic")
	c.Flags().Var((*selector)(&f.Type), "type", "only events of this type")
	c.Flags().Var((*selector)(&f.TenantID), "tenant", "only events of this tenant")
	c.Flags().Var((*selector)(&f.AggregateType), "aggregate-type", "only events of aggregates of this type")
	c.Flags().Var((*selector)(&f.AggregateID), "aggregate-id", "only events of the aggregate with this id")
	c.Flags().Var((*selector)(&f.Key), "key", "only events of this key; needs --topic")
	c.Flags().Var((*selector)(&f.Fingerprint), "group", "only events of this failure group, see outbox groups")
	c.Flags().Var((*selector)(&f.ErrorCode), "error-code", "only events whose last failure has this code")
	c.Flags().Var((*selector)(&f.Cause), "cause",
		"only what the event with this id caused, or the effect with this id, or the command with this key")
	c.Flags().Var((*moments)(&f.CreatedFrom), "since", "only events created since: a time, or how long ago, as 2h")
	c.Flags().Var((*moments)(&f.CreatedBefore), "until", "only events created before: a time, or how long ago, as 1h")
}

// moments is a flag whose value is a time, or how long ago that was.
type moments time.Time

func (m *moments) Set(s string) error {
	if ago, err := parseSpan(s); err == nil {
		if ago < 0 {
			return fmt.Errorf("%s is negative: it is how long ago", s)
		}
		*m = moments(time.Now().Add(-ago))
		return nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return errors.New("it is a time such as 2026-11-23T18:00:00Z, or how long ago, such as 2h")
	}
	*m = moments(at)
	return nil
}

func (m *moments) String() string {
	if at := time.Time(*m); !at.IsZero() {
		return at.UTC().Format(time.RFC3339)
	}
	return ""
}

func (m *moments) Type() string { return "time" }

// eventPage is what `outbox list` prints: an ops.Page.
type eventPage struct {
	Events []listedEvent `json:"events"`
	// Chain is that of --cause.
	Chain *ops.Chain `json:"chain,omitempty"`
	paging
}

func (a *app) listCommand() *cobra.Command {
	var q ops.ListQuery
	var statuses []string
	c := &cobra.Command{
		Use:   "list",
		Short: "List events, without their payloads",
		Long: `list lists events in the order of an index. A filter that no index serves is compared row by row, and
then a page may be short: the last line says how to go on.

The status "in the log" is that of an event which was left to a reader of the log of the database, and
is not known to be published: walrelay has not confirmed it yet (it writes down every ten seconds how
far it is), or another program, such as Debezium, reads the log. --json has the status of the row, which is
done, and "log": unconfirmed, unknown or published. --status done selects them all.

--cause lists what an event caused, directly. Then it walks up and down from there, as far as this
table has rows, and says where it ends.`,
		Example: "  outbox list --status new,retry --topic orders\n  outbox list --topic orders --key order/7\n" +
			"  outbox list --newest --since 10m\n  outbox list --cause 0192f1c2-...",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if len(statuses) == 0 && c.Flag("status").Changed {
				return usage("--status: it is empty")
			}
			for _, name := range statuses {
				if name == "pending" { // as outbox status calls them
					q.Statuses = append(q.Statuses, ops.StatusNew, ops.StatusRetry)
					continue
				}
				s, err := ops.ParseStatus(name)
				if err != nil {
					return usage("--status: %w", err)
				}
				q.Statuses = append(q.Statuses, s)
			}
			if q.Limit < 1 || q.Limit > ops.MaxLimit {
				return usage("--limit %d: it is 1 to %d", q.Limit, ops.MaxLimit)
			}
			return a.withOpsOn(c, func(ctx context.Context, db *database, api *ops.API) error {
				found, err := api.List(ctx, q)
				if err != nil {
					return err
				}
				page := eventPage{paging: paging{More: found.Next != "", Next: found.Next}}
				if page.Events, err = a.listed(ctx, db, found.Events); err != nil {
					return err
				}
				if len(page.Events) == 0 && page.Next == "" {
					a.hintUnseen(ctx, api, q.Filter)
				}
				if q.Cause != "" {
					chain, err := api.Chain(ctx, q.Cause)
					if err != nil {
						return err
					}
					page.Chain = &chain
				}
				return a.print(page, func() {
					a.printEvents(page.Events)
					a.printChain(page.Chain)
					a.notePaging(page.paging)
				})
			})
		},
	}
	filterFlags(c, &q.Filter)
	f := c.Flags()
	f.StringSliceVar(&statuses, "status", nil,
		"pending (new and retry), new, retry, dead, done, discarded (default: all)")
	f.BoolVar(&q.Newest, "newest", false, "the newest first")
	f.IntVar(&q.Limit, "limit", ops.DefaultLimit, "events on a page, up to 1000")
	f.StringVar(&q.After, "after", "", "the next page: what the last line of the page before says")
	_ = c.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(
		[]string{"pending", "new", "retry", "dead", "done", "discarded"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (a *app) printEvents(events []listedEvent) {
	if len(events) == 0 {
		a.sayf("no event\n")
		return
	}
	t := &table{}
	t.add("ID", "STATUS", "TOPIC", "TYPE", "KEY", "ATTEMPTS", "CREATED", "ERROR")
	for _, e := range events {
		status := e.status()
		if e.Leased() {
			status += ", leased"
		}
		if !e.ReplayOf.IsZero() {
			status += ", replay"
		}
		t.add(e.ID.String(), status, e.Topic, e.Type, orDash(e.Key), strconv.Itoa(e.Attempts), moment(e.CreatedAt),
			orDash(short(e.Error)))
	}
	t.write(a.Out)
}

// printChain prints what an event was caused by and what it has caused. Nil: it has no chain.
func (a *app) printChain(c *ops.Chain) {
	if c == nil {
		return
	}
	t := &table{}
	for _, part := range []struct {
		what   string
		events []ops.Event
	}{{"caused by", c.Causes}, {"caused", c.Caused}} {
		for _, e := range part.events {
			t.add(part.what, e.EventID, e.Topic, e.Type, e.Status.String(), moment(e.CreatedAt))
		}
	}
	t.write(a.Out)
	a.sayf("%s\n", singleLine(c.Text))
}

func (a *app) showCommand() *cobra.Command {
	var payload bool
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Print all about an event: state, failure, neighbours of its key, audit",
		Long: `show prints an event by its row id or its event id. An event with several destinations has one row for
each. The payload and the headers are left out, because they may be confidential: --payload has them.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withOpsOn(c, func(ctx context.Context, db *database, api *ops.API) error {
				found, err := api.Show(ctx, args[0])
				if err != nil {
					return err
				}
				states, err := db.logStates(ctx, a.schema, a.prefixOf(),
					converted(found, func(d ops.Details) ops.Event { return d.Event }))
				if err != nil {
					return err
				}
				all := make([]details, len(found))
				for i, d := range found {
					if !payload {
						d.Content.Payload, d.Content.Headers = nil, nil
					}
					all[i] = details{d, states[i]}
				}
				return a.print(detailsList{all}, func() {
					for _, d := range all {
						a.printDetails(d, payload)
					}
				})
			})
		},
	}
	c.Flags().BoolVar(&payload, "payload", false, "print headers and payload too")
	return c
}

// details is all about an event, with what is known about it if a reader of the log publishes it.
type details struct {
	ops.Details
	logState
}

// detailsList is what `outbox show` prints.
type detailsList struct {
	Events []details `json:"events"`
}

func (a *app) printDetails(d details, payload bool) {
	t := &table{}
	add := func(name, value string) {
		if value != "" && value != "-" {
			t.add(name, value)
		}
	}
	add("row", d.ID.String())
	add("event", d.EventID)
	add("cause", singleLine(d.CausationID))
	add("status", d.status(d.Status))
	add("log", d.words())
	if !d.ReplayOf.IsZero() {
		add("replay of", d.ReplayOf.String())
	}
	add("topic", d.Topic)
	add("type", d.Type)
	add("tenant", d.TenantID)
	add("key", d.Key)
	add("attempts", strconv.Itoa(d.Attempts))
	add("created", moment(d.CreatedAt))
	add("due", moment(d.AvailableAt))
	if d.Leased() {
		add("leased by", d.ClaimedBy)
		add("leased until", moment(d.LeaseUntil))
	}
	if d.Log == "" { // otherwise it is the time of the insert
		add("ended", moment(d.DoneAt))
	}
	add("failure", d.ErrorCode)
	add("error", singleLine(d.Error))
	add("place", d.Receipt)
	for _, e := range d.Ahead {
		add("before it", e.ID.String()+" "+e.Status.String())
	}
	for _, e := range d.Behind {
		add("after it", e.ID.String()+" "+e.Status.String())
	}
	if len(d.Ahead) == ops.Neighbours || len(d.Behind) == ops.Neighbours {
		add("the key", fmt.Sprintf("may have more: outbox list --topic %s --key %s", shellWord(d.Topic),
			shellWord(d.Key)))
	}
	for _, e := range d.Audit {
		add("audit", moment(e.At)+" "+e.Action+" by "+e.Actor+": "+short(e.Reason))
	}
	if payload {
		names := make([]string, 0, len(d.Content.Headers))
		for name := range d.Content.Headers {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			add("header", name+": "+short(d.Content.Headers[name]))
		}
	}
	t.write(a.Out)
	if payload {
		a.sayf("payload\n%s\n", d.Content.Payload)
	}
	a.sayf("\n")
}

func (a *app) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain ID",
		Short: "Say why an event is where it is, and what changes that",
		Long: `explain says in one sentence why an event is where it is, and names the command that changes it. The
id is that of a row or of an event. Of an event that is read from the log of PostgreSQL it says whether
walrelay has published it, as far as it has written that down (every ten seconds), and whether somebody
reads the slot. It does not advise to replay such an event: while the reader of the log is not past it,
a replay is a second copy. Of an event that a handler published, or that has caused others, it walks up
and down as far as this table has rows, and says where it ends. Exit code 1 says that no row has that id.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withOpsOn(c, func(ctx context.Context, db *database, api *ops.API) error {
				list, err := api.Explain(ctx, args[0])
				if err != nil {
					return err
				}
				all, err := db.explainLog(ctx, a.schema, a.prefixOf(), list)
				if err != nil {
					return err
				}
				err = a.print(explanations{all}, func() {
					for _, x := range all {
						a.sayf("%s\n", x.Text)
						if x.Fix != "" {
							a.sayf("fix: %s\n", x.Fix)
						}
						a.printChain(x.Chain)
					}
				})
				if err == nil && all[0].Reason == ops.ReasonUnknown {
					err = exit(ExitFailed, "no event has the id %s", short(args[0]))
				}
				return err
			})
		},
	}
}
