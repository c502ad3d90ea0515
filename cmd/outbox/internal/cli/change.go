package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cheggaaa/pb/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// deadFilter selects dead events.
type deadFilter struct {
	topic, eventType, tenant string
}

func (f *deadFilter) flags(c *cobra.Command) {
	c.Flags().StringVar(&f.topic, "topic", "", "only of this topic")
	c.Flags().StringVar(&f.eventType, "type", "", "only of this type")
	c.Flags().StringVar(&f.tenant, "tenant", "", "only of this tenant")
}

func (f deadFilter) filter() ops.Filter {
	return ops.Filter{Statuses: []ops.Status{ops.StatusDead}, Topic: f.topic, Type: f.eventType, TenantID: f.tenant}
}

// short is a text in one line of a table.
func short(s string) string { return within(80, s) }

// within is a text in one line that has at most n characters.
func within(n int, s string) string {
	s = ops.Printable(s)
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// change is what redrive and discard did, or would do.
type change struct {
	Action  string         `json:"action"`
	DryRun  bool           `json:"dry_run"`
	Events  int            `json:"events"`
	Capped  bool           `json:"capped"`            // a dry run stopped counting: there are more
	Waiting int            `json:"waiting,omitempty"` // those of Events that are not dead
	Keys    int            `json:"keys"`
	Topics  map[string]int `json:"topics"`
	Oldest  *time.Time     `json:"oldest,omitempty"`
	Newest  *time.Time     `json:"newest,omitempty"`
	Changed int            `json:"changed"`
}

// mutation is redrive or discard.
type mutation struct {
	deadFilter
	who
	name     string
	all      bool
	skipDead bool
	force    bool // discard: events that a relay holds too
}

func (a *app) redriveCommand() *cobra.Command {
	return a.mutationCommand("redrive", "Open dead events again, with fresh attempts",
		`redrive opens dead events again, with fresh attempts. An event keeps its place in its key. If the
relays have DeadPolicy SkipDead, give --skip-dead: the event goes to the end of its key.`)
}

func (a *app) discardCommand() *cobra.Command {
	return a.mutationCommand("discard", "End events without publishing them",
		`discard ends events for good, without publishing them. Their keys go on. A row id may also name an
event that waits, such as an event that its destination always refuses. An event that a relay is
publishing is left alone: repeat the command, or use --force.`)
}

func (a *app) mutationCommand(name, shortText, long string) *cobra.Command {
	m := mutation{name: name}
	c := &cobra.Command{
		Use:   name + " (ID... | --all) --reason TEXT",
		Short: shortText,
		Long: long + `

Give row ids, or --all with a filter. For many events, use a plan: outbox ` + name + ` plan.`,
		Example: fmt.Sprintf("  outbox %s --all --topic orders --reason 'schema repaired, INC-42'", name),
		RunE: func(c *cobra.Command, args []string) error {
			ids, err := m.check(args)
			if err != nil {
				return err
			}
			policy := core.BlockKey
			if m.skipDead {
				policy = core.SkipDead
			}
			return a.withOutboxOf(c, policy, func(ctx context.Context, s *session) error {
				return a.mutate(ctx, s, m, ids)
			})
		},
	}
	m.deadFilter.flags(c)
	f := c.Flags()
	f.BoolVar(&m.all, "all", false, "everything dead that the filter selects")
	m.dryRunFlag(c)
	f.BoolVar(&m.skipDead, "skip-dead", false, "the relays have DeadPolicy SkipDead")
	if name == string(ops.ActionDiscard) {
		f.BoolVar(&m.force, "force", false, "also events that a relay holds: it may still publish them")
	}
	m.who.flags(c)
	plan := a.planCommand(ops.Action(name))
	c.AddCommand(plan, a.applyCommand(ops.Action(name)))
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && c.Name() == name &&
			plan.Flag(unknown.GetSpecifiedName()) != nil {
			return fmt.Errorf("%w: `%s` has it", err, plan.CommandPath())
		}
		return err
	})
	return c
}

// check checks the arguments, and returns the ids.
func (m *mutation) check(args []string) (ids []core.RowID, err error) {
	switch {
	case m.all == (len(args) > 0):
		return nil, usage("name the events: ids, or --all with a filter")
	case len(args) > 0 && m.deadFilter != deadFilter{}:
		return nil, usage("--topic, --type and --tenant are for --all")
	}
	if err := m.who.check(); err != nil {
		return nil, err
	}
	return rowIDs(args)
}

// rowIDs reads the ids of rows, each once.
func rowIDs(args []string) (ids []core.RowID, err error) {
	for _, arg := range args {
		id, err := core.ParseRowID(arg)
		if err != nil {
			return nil, usage("%s: %w", short(arg), err)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func (a *app) mutate(ctx context.Context, s *session, m mutation, ids []core.RowID) error {
	selected, more, err := a.selected(ctx, s.api, m, ids)
	if err != nil {
		return err
	}
	if len(selected) == 0 {
		a.hintUnseen(ctx, s.api, m.filter())
	}
	done := blastRadius(m, selected)
	done.Capped = more
	if !a.json {
		a.printRadius(done)
	}
	leased := 0
	for _, e := range selected {
		if e.Leased() && !m.force { // a discard leaves it alone
			leased++
			a.note("row %s is leased: a relay publishes it until %s", e.ID, moment(e.LeaseUntil))
		}
	}
	if len(selected) > 0 && !m.dryRun {
		ask := m.name + " " + many(len(selected), "event")
		if err := a.confirm(ctx, m.who, a.tables(s.db, "outbox"), ask); err != nil {
			return err
		}
		err = a.work(ctx, s.ob, m, selected, &done)
	}
	perr := a.print(done, func() {
		if m.dryRun {
			a.sayf("%s%s would be changed\n", done.atLeast(), many(done.Events, "event"))
		} else {
			a.sayf("%s changed\n", many(done.Changed, "event"))
		}
	})
	switch {
	case err != nil && done.Changed > 0:
		return exit(ExitPartial, "%d of %d events are changed; repeat the command for the others: %w", done.Changed,
			done.Events, err)
	case err != nil:
		return err
	case m.dryRun && done.Events-leased < len(ids):
		return exit(ExitPartial, "%d of %d events would be changed", done.Events-leased, len(ids))
	case !m.dryRun && (done.Changed < done.Events || done.Events < len(ids)):
		return exit(ExitPartial, "%d of %d events are changed: the others have changed since they were read, or a "+
			"relay publishes them; `outbox explain ID` says what an event waits for", done.Changed,
			max(done.Events, len(ids)))
	}
	return perr
}

// dryRunPages is how many pages a dry run reads: as many events as a plan has.
const dryRunPages = ops.MaxPlan / ops.MaxLimit

// selected reads the dead events that the flags select, or the rows with the ids: dead ones, and
// for a discard also waiting ones. more: a dry run has left some out.
func (a *app) selected(
	ctx context.Context, api *ops.API, m mutation, ids []core.RowID,
) (all []ops.Event, more bool, err error) {
	if len(ids) == 0 {
		q := ops.ListQuery{Filter: m.filter(), Limit: ops.MaxLimit}
		for pages := 1; ; pages++ {
			page, err := api.List(ctx, q)
			all, more = append(all, page.Events...), page.Next != ""
			if err != nil || !more || m.dryRun && pages == dryRunPages {
				return all, more, err
			}
			q.After = page.Next
		}
	}
	for _, id := range ids {
		rows, err := api.Rows(ctx, id)
		switch {
		case err != nil:
			return nil, false, err
		case len(rows) == 0:
			a.note("no row has the id %s%s", id, rowOfEvent(ctx, api, id))
		case rows[0].Status == ops.StatusDead, rows[0].Status.Open() && m.name == string(ops.ActionDiscard):
			all = append(all, rows[0])
		case rows[0].ByLog():
			a.note("row %s was left to a reader of the log of the database: `outbox explain %[1]s`", id)
		case rows[0].Status.Open():
			a.note("row %s is %s, not dead: `outbox explain %[1]s`", id, rows[0].Status)
		case rows[0].Status == ops.StatusDone:
			a.note("row %s is done: it was published. To publish it again: `outbox replay plan %[1]s`", id)
		default:
			a.note("row %s is %s: it has ended", id, rows[0].Status)
		}
	}
	return all, false, nil
}

// rowOfEvent returns the rows of an event, if the id is an event's, or "". A failure of the query
// does not fail the command.
func rowOfEvent(ctx context.Context, api *ops.API, id core.RowID) string {
	page, err := api.List(ctx, ops.ListQuery{Filter: ops.Filter{EventID: id.String()}, Limit: 10})
	if err != nil || len(page.Events) == 0 {
		return ""
	}
	rows := converted(page.Events, func(e ops.Event) string { return fmt.Sprintf("%s (%s)", e.ID, e.Status) })
	return ": it is that of an event, whose row is " + strings.Join(rows, ", ")
}

// blastRadius counts what a change touches.
func blastRadius(m mutation, events []ops.Event) change {
	c := change{Action: m.name, DryRun: m.dryRun, Events: len(events), Topics: map[string]int{}}
	keys := map[[3]string]bool{}
	for _, e := range events {
		c.Topics[e.Topic]++
		if e.Status.Open() {
			c.Waiting++
		}
		if e.Key != "" {
			keys[[3]string{e.TenantID, e.Topic, e.Key}] = true
		}
		if at := e.CreatedAt; c.Oldest == nil || at.Before(*c.Oldest) {
			c.Oldest = &at
		}
		if at := e.CreatedAt; c.Newest == nil || at.After(*c.Newest) {
			c.Newest = &at
		}
	}
	c.Keys = len(keys)
	return c
}

// atLeast is the word before a number that is a lower bound.
func (c *change) atLeast() string {
	if c.Capped {
		return "at least "
	}
	return ""
}

func (a *app) printRadius(c change) {
	status := "dead"
	if c.Action == string(ops.ActionReplay) {
		status = "done"
	}
	if c.Waiting > 0 {
		status = fmt.Sprintf("dead and %d waiting", c.Waiting)
	}
	a.sayf("%s: %s%d %s %s of %s\n", c.Action, c.atLeast(), c.Events-c.Waiting, status, plural(c.Events, "event"),
		many(c.Keys, "key"))
	if c.Events == 0 {
		return
	}
	a.sayf("oldest %s, newest %s\n", moment(*c.Oldest), moment(*c.Newest))
	t := newTable("DESTINATION|EVENTS")
	for _, topic := range slices.Sorted(maps.Keys(c.Topics)) {
		t.add(topic, strconv.Itoa(c.Topics[topic]))
	}
	t.write(a.Out)
}

// work changes the events, and notifies the relays.
func (a *app) work(ctx context.Context, ob *core.Outbox, m mutation, events []ops.Event, done *change) error {
	do := ob.Redrive
	if m.name == "discard" {
		do = ob.Discard
	}
	// Under SkipDead a redrive appends each event at the end of its key, and ids need not have the
	// order of the key.
	slices.SortStableFunc(events, func(a, b ops.Event) int {
		return cmp.Or(cmp.Compare(a.TenantID, b.TenantID), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Key, b.Key),
			cmp.Compare(a.KeySeq, b.KeySeq))
	})
	add, finish := a.progress(0, len(events))
	defer finish()
	for chunk := range slices.Chunk(events, 500) {
		req := core.AdminRequest{Seen: map[core.RowID]core.Sight{}, Actor: m.actor, Reason: m.reason, Force: m.force}
		for i := range chunk { // between the question and the answer another person may have changed them
			req.IDs = append(req.IDs, chunk[i].ID)
			req.Seen[chunk[i].ID] = chunk[i].Sight()
		}
		n, err := do(ctx, req)
		done.Changed += n
		if err != nil {
			return err
		}
		add(len(chunk))
	}
	if n, ok := ob.Repository().(core.Waker); ok {
		if err := n.Notify(ctx); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			a.note("the relays were not told, and find the events with their next poll: %v", err)
		}
	}
	return nil
}

// progress shows the progress of long work on a terminal. done parts were done earlier.
func (a *app) progress(done, total int) (add func(int), finish func()) {
	if !a.Progress || total <= 500 {
		return func(int) {}, func() {}
	}
	bar := pb.New(total).SetWriter(a.Err).SetCurrent(int64(done))
	bar.SetTemplateString(`{{counters . }} {{bar . }} {{percent . }} {{speed . "%s/s"}} {{rtime . "%s left"}}`)
	bar.Start()
	return func(n int) { bar.Add(n) }, func() { bar.Finish() }
}
