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
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// session is an outbox in its database, with the API for operators. It does not relay.
type session struct {
	db  *database
	ob  *core.Outbox
	api *ops.API
}

// outbox opens the outbox of a database.
func (a *app) outbox(db *database, policy core.DeadPolicy) (*session, error) {
	repo, err := sqloutbox.New(db.DB, sqloutbox.Config{Dialect: db.dialect, Schema: a.schema, Prefix: a.prefix})
	if err != nil {
		return nil, usage("%w", err)
	}
	s := &session{db: db}
	if s.ob, err = core.New(core.Config{Repository: repo, DeadPolicy: policy}); err != nil {
		return nil, err
	}
	s.api, err = a.apiOf(db, s.ob, repo)
	return s, err
}

// besideTables is the Store of an API with tables of other prefixes beside the outbox.
type besideTables struct {
	*sqlops.Store
	beside ops.Beside
}

func (s besideTables) Beside() ops.Beside { return s.beside }

// apiOf returns the API of an outbox, with the effects and the keys of their own prefixes.
func (a *app) apiOf(db *database, ob *core.Outbox, repo core.Repository) (*ops.API, error) {
	store, err := sqlops.NewStore(repo)
	if err != nil {
		return nil, err
	}
	s := besideTables{store, store.Beside()}
	if a.effectsPrefix != "" {
		s.beside.Effects, err = sqlcommand.New(db.DB, sqlcommand.Config{
			Dialect: db.dialect, Schema: a.schema, Prefix: a.effectsPrefix,
		})
		if err != nil {
			return nil, usage("%w", err)
		}
	}
	if a.keysPrefix != "" {
		s.beside.Keys, err = sqlonce.New(
			db.DB,
			sqlonce.Config{Dialect: db.dialect, Schema: a.schema, Prefix: a.keysPrefix},
		)
		if err != nil {
			return nil, usage("%w", err)
		}
	}
	return ops.New(ob, s)
}

// withOutbox runs fn with the outbox of the database.
func (a *app) withOutbox(c *cobra.Command, fn func(ctx context.Context, s *session) error) error {
	return a.withOutboxOf(c, core.BlockKey, fn)
}

// withOutboxOf is withOutbox for relays that have another DeadPolicy.
func (a *app) withOutboxOf(
	c *cobra.Command, policy core.DeadPolicy, fn func(ctx context.Context, s *session) error,
) error {
	return a.withDatabase(c, func(ctx context.Context, db *database) error {
		s, err := a.outbox(db, policy)
		if err != nil {
			return err
		}
		err = fn(ctx, s)
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

// hintUnseen warns that no event in the table has a name given to a command, because it may be
// misspelled. A failure of the query does not fail the command.
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

// filterFlags registers flags for ops.Filter.
func filterFlags(c *cobra.Command, f *ops.Filter) {
	c.Flags().StringVar(&f.Topic, "topic", "", "only of this topic")
	c.Flags().StringVar(&f.Type, "type", "", "only of this type")
	c.Flags().StringVar(&f.TenantID, "tenant", "", "only of this tenant")
	c.Flags().StringVar(&f.AggregateType, "aggregate-type", "", "only of this type of aggregate")
	c.Flags().StringVar(&f.AggregateID, "aggregate-id", "", "only of the aggregate with this id")
	c.Flags().StringVar(&f.Key, "key", "", "only of this key; needs --topic")
	c.Flags().StringVar(&f.Fingerprint, "group", "", "only of this group of outbox groups")
	c.Flags().StringVar(&f.ErrorCode, "error-code", "", "only with this code of the last failure")
	c.Flags().StringVar(&f.Cause, "cause", "",
		"only what this event, effect or command caused")
	c.Flags().Var((*moments)(&f.CreatedFrom), "since", "only events created since: a time, or an age such as 2h")
	c.Flags().Var((*moments)(&f.CreatedBefore), "until", "only events created before: a time, or an age such as 1h")
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
	// Chain is the chain for --cause.
	Chain *ops.Chain `json:"chain,omitempty"`
	paging
}

func (a *app) listCommand() *cobra.Command {
	var q ops.ListQuery
	var statuses []string
	c := &cobra.Command{
		Use:   "list",
		Short: "List events, without their payloads",
		Long: `list lists events in the order of an index. A page may be short: its last line says how to go on.

An event with status "in the log" is left to a reader of the log (walrelay, Debezium), and may be
unpublished. With --json its status is done, and "log" is unconfirmed, unknown or published. --cause
lists the events that one event caused, then the whole chain above and below that event.`,
		Example: "  outbox list --status pending --topic orders --key order/7",
		Args:    cobra.NoArgs,
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
			return a.withOutbox(c, func(ctx context.Context, s *session) error {
				found, err := s.api.List(ctx, q)
				if err != nil {
					return err
				}
				page := eventPage{paging: paging{More: found.Next != "", Next: found.Next}}
				if page.Events, err = a.listed(ctx, s.db, found.Events); err != nil {
					return err
				}
				if len(page.Events) == 0 && page.Next == "" {
					a.hintUnseen(ctx, s.api, q.Filter)
				}
				if q.Cause != "" {
					chain, err := s.api.Chain(ctx, q.Cause)
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
	limitFlag(c, &q.Limit, ops.DefaultLimit, 1000)
	f.StringVar(&q.After, "after", "", "the next page")
	complete(c, "status", "pending", "new", "retry", "dead", "done", "discarded")
	return c
}

func (a *app) printEvents(events []listedEvent) {
	printRows(a, "no event", "ID|STATUS|TOPIC|TYPE|KEY|ATTEMPTS|CREATED|ERROR", events,
		func(t *table, e listedEvent) {
			status := e.status()
			if e.Leased() {
				status += ", leased"
			}
			if !e.ReplayOf.IsZero() {
				status += ", replay"
			}
			t.add(e.ID.String(), status, e.Topic, e.Type, orDash(e.Key), strconv.Itoa(e.Attempts), moment(e.CreatedAt),
				orDash(short(e.Error)))
		})
}

// printChain prints the causes and the consequences of an event. Nil: it has no chain.
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
	a.sayf("%s\n", c.Text)
}

func (a *app) showCommand() *cobra.Command {
	var payload bool
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Print all about an event: state, failed attempts, neighbours of its key, audit",
		Long: `show prints an event by its row id or event id: one row for each destination, with the last ten
failed attempts. Refusals during an outage cost no attempt and are not among them.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withOutbox(c, func(ctx context.Context, s *session) error {
				found, err := s.api.Show(ctx, args[0])
				if err != nil {
					return err
				}
				states, err := s.db.logStates(ctx, a.schema, a.prefixOf(),
					converted(found, func(d ops.Details) ops.Event { return d.Event }))
				if err != nil {
					return err
				}
				all := make([]details, len(found))
				for i, d := range found {
					if !payload {
						d.Content.Payload, d.Content.Headers = nil, nil
						for i := range d.Audit { // the difference of an edit is confidential too
							d.Audit[i].Detail = ""
						}
					}
					all[i] = details{d, states[i]}
				}
				return a.print(listing{"events": all}, func() {
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

// details is all about an event, with the state of its publication if a reader of the log publishes
// it.
type details struct {
	ops.Details
	logState
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
	add("cause", d.CausationID)
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
	} else if d.Status == ops.StatusDone && d.ClaimedBy != "" && !d.ByLog() {
		add("sent by", d.ClaimedBy+", "+pathWords[d.Path])
	}
	if d.Log == "" { // otherwise it is the time of the insert
		add("ended", moment(d.DoneAt))
	}
	add("failure", d.ErrorCode)
	add("error", d.Error)
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
	for _, line := range timeline(d.Failures, d.Audit) {
		add(line.name, line.text)
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
		for _, e := range d.Audit {
			if e.Detail != "" {
				a.sayf("changed by the %s of %s\n%s", e.Action, moment(e.At), lines(e.Detail))
			}
		}
		a.sayf("payload\n%s\n", lines(d.Content.Payload))
	}
	a.sayf("\n")
}

// pathWords describe how a relay got an event.
var pathWords = map[core.Path]string{
	core.PathHot: "straight from its commit", core.PathCold: "by the poller", "": "by an unknown path",
}

// timelineEntry is something that happened to an event.
type timelineEntry struct {
	at         time.Time
	name, text string
}

// timeline is what relays and people did to an event, oldest first.
func timeline(failures []ops.Attempt, audit []ops.AuditEntry) (all []timelineEntry) {
	for _, f := range failures {
		text := fmt.Sprintf("%s %d, %s, %s: %s", moment(f.At), f.Attempt, pathWords[f.Path], f.Node, f.Code)
		if f.Error != "" {
			text += ": " + short(f.Error)
		}
		all = append(all, timelineEntry{f.At, "attempt", text})
	}
	for _, e := range audit {
		all = append(all, timelineEntry{
			e.At, "audit", moment(e.At) + " " + e.Action + " by " + e.Actor + ": " + short(e.Reason),
		})
	}
	slices.SortStableFunc(all, func(a, b timelineEntry) int { return a.at.Compare(b.at) })
	return all
}

func (a *app) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain ID",
		Short: "Say why an event is where it is, and what changes that",
		Long: `explain says in one sentence why an event is where it is, and names the command that changes it. It
also says what each consumer did with the event, if an inbox is in the database, and what it caused.
ID is a row id or an event id. Exit code 1: no row has that id.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withOutbox(c, func(ctx context.Context, s *session) error {
				list, err := s.api.Explain(ctx, args[0])
				if err != nil {
					return err
				}
				all, err := s.db.explainLog(ctx, a.schema, a.prefixOf(), list)
				if err != nil {
					return err
				}
				err = a.print(listing{"explanations": all}, func() {
					for _, x := range all {
						a.sayf("%s\n", x.Text)
						if x.Fix != "" {
							a.sayf("fix: %s\n", x.Fix)
						}
						a.printOutcomes(x.Explanation)
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

// printOutcomes prints what each consumer did with an event.
func (a *app) printOutcomes(x ops.Explanation) {
	for _, o := range x.Consumers {
		a.sayf("%s\n", o.Said)
		if o.Fix != "" {
			a.sayf("fix: %s\n", o.Fix)
		}
	}
	if x.ConsumersError != "" {
		a.note("what consumers did with it is not known: %s", x.ConsumersError)
	}
}
