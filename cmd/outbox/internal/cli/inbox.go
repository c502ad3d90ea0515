package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
)

// inboxStatuses are the statuses of the messages that list shows.
var inboxStatuses = []inbox.Status{
	inbox.StatusFailed, inbox.StatusDead, inbox.StatusRedriven, inbox.StatusDiscarded, inbox.StatusProcessing,
}

// inboxState counts the events that a handler has failed with.
type inboxState struct {
	Consumer   string  `json:"consumer"`
	Handler    string  `json:"handler"`
	Failed     int64   `json:"failed"`
	Dead       int64   `json:"dead"`
	Redriven   int64   `json:"redriven"`
	Processing int64   `json:"processing"`
	OldestSecs float64 `json:"oldest_seconds"` // since the oldest of them was received

	capped bool // there may be more than was counted
}

// inboxBacklog is what `outbox inbox` prints.
type inboxBacklog struct {
	Database string       `json:"database"`
	Dead     int64        `json:"dead"`
	Capped   bool         `json:"capped"` // there may be more than was counted
	Handlers []inboxState `json:"handlers"`
}

// inboxRow is an event that a handler has failed with.
type inboxRow struct {
	Consumer   string     `json:"consumer"`
	Handler    string     `json:"handler"`
	Tenant     string     `json:"tenant_id,omitempty"`
	EventID    string     `json:"event_id"`
	Type       string     `json:"type,omitempty"`
	Topic      string     `json:"topic,omitempty"`
	Partition  *int32     `json:"partition,omitempty"` // with Offset: where in Topic, if the subscriber said it
	Offset     *int64     `json:"offset,omitempty"`
	Key        string     `json:"key,omitempty"`
	Status     string     `json:"status"`
	Attempts   int        `json:"attempts"`
	ErrorCode  string     `json:"error_code,omitempty"`
	Error      string     `json:"error,omitempty"`
	ReceivedAt time.Time  `json:"received_at"`
	FailedAt   *time.Time `json:"failed_at,omitempty"`
}

// place returns topic/partition@offset, or the topic alone.
func (r inboxRow) place() string {
	if r.Partition == nil || r.Offset == nil {
		return r.Topic
	}
	return fmt.Sprintf("%s/%d@%d", r.Topic, *r.Partition, *r.Offset)
}

// inboxPage is what `outbox inbox list` prints.
type inboxPage struct {
	Messages []inboxRow `json:"messages"`
	paging
}

// inboxFilter selects rows of inbox_failure.
type inboxFilter struct{ consumer, handler, tenant, eventID, status string }

func (a *app) inboxCommand() *cobra.Command {
	maxDead := int64(-1)
	c := group(&cobra.Command{
		Use:   "inbox",
		Short: "Count, list, redrive, release and discard the messages that consumers failed with",
		Long: `inbox counts the messages that the handlers of consumers have failed with:

  failed      will be tried again when it is delivered again
  dead        given up: waits for a person
  redriven    a person has redriven it: waits for its next delivery
  processing  another program has marked it as in work`,
		Example: "  outbox inbox list --status dead",
	}, a.inboxListCommand(), a.inboxRedriveCommand(), a.inboxReleaseCommand(), a.inboxDiscardCommand())
	c.Args = cobra.NoArgs
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.withInbox(c, func(ctx context.Context, db *database, store *sqlinbox.Store) error {
			b, err := inboxBacklogOf(ctx, db, store)
			if err != nil {
				return err
			}
			if err := a.print(b, func() { a.printInboxBacklog(b) }); err != nil {
				return err
			}
			if maxDead >= 0 && b.Dead > maxDead {
				return exit(ExitUnhealthy, "%d messages are dead, more than %d", b.Dead, maxDead)
			}
			return nil
		})
	}
	c.Flags().Int64Var(&maxDead, "max-dead", -1, "exit code 3 if more are dead; -1: any number")
	return c
}

// withInbox runs fn with the tables of the inbox, with the prefix of --prefix, or none.
func (a *app) withInbox(
	c *cobra.Command, fn func(ctx context.Context, db *database, store *sqlinbox.Store) error,
) error {
	return a.withKind(c, "inbox", func(ctx context.Context, db *database) error {
		store, err := sqlinbox.New(db.DB, sqlinbox.Config{Dialect: db.dialect, Schema: a.schema, Prefix: a.prefix})
		if err != nil {
			return usage("%w", err)
		}
		return fn(ctx, db, store)
	})
}

// inboxBacklogOf counts the messages of the handlers that have failed with some.
func inboxBacklogOf(ctx context.Context, db *database, store *sqlinbox.Store) (b inboxBacklog, err error) {
	b = inboxBacklog{Database: db.name, Handlers: []inboxState{}}
	handlers, err := store.Backlog(ctx, maxCounted)
	for _, h := range handlers {
		if h.Failed+h.Dead+h.Redriven+h.Processing == 0 {
			continue
		}
		b.Handlers = append(b.Handlers, inboxStateOf(h))
		b.Dead += int64(h.Dead)
		b.Capped = b.Capped || h.More
	}
	return b, err
}

func (a *app) printInboxBacklog(b inboxBacklog) {
	a.sayf("%s\n", b.Database)
	num := func(n int64) string { return counted(n, b.Capped) }
	printRows(a, "no message has failed", "CONSUMER|HANDLER|FAILED|DEAD|REDRIVEN|PROCESSING|OLDEST", b.Handlers,
		func(t *table, s inboxState) {
			t.add(s.Consumer, s.Handler, num(s.Failed), a.inRed(s.Dead > 0, num(s.Dead)), num(s.Redriven),
				num(s.Processing), age(seconds(s.OldestSecs)))
		})
}

func (f *inboxFilter) flags(c *cobra.Command) {
	c.Flags().StringVar(&f.consumer, "consumer", "", "of this consumer")
	c.Flags().StringVar(&f.handler, "handler", "", "of this handler")
	c.Flags().StringVar(&f.tenant, "tenant", "", "only of this tenant")
}

func (a *app) inboxListCommand() *cobra.Command {
	var f inboxFilter
	var limit int
	c := &cobra.Command{
		Use:   "list",
		Short: "List messages that consumers failed with, the dead ones of each consumer first",
		Long: `list lists the messages that handlers have failed with, with their last failure, by consumer, status
and arrival. The inbox has no payloads: they are in the broker, or in its poison queue.`,
		Example: "  outbox inbox list --status dead --consumer mailer",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.status != "" && !slices.Contains(inboxStatuses, inbox.Status(f.status)) {
				return usage("--status %q: it is failed, dead, redriven, discarded or processing", f.status)
			}
			return a.withInbox(c, func(ctx context.Context, _ *database, store *sqlinbox.Store) error {
				rows, more, err := inboxRows(ctx, store, f, limit)
				if err != nil {
					return err
				}
				if len(rows) == 0 {
					a.hintInbox(ctx, store, f)
				}
				page := inboxPage{Messages: rows, paging: paging{More: more}}
				return a.print(page, func() { a.printInboxRows(page) })
			})
		},
	}
	f.flags(c)
	c.Flags().StringVar(&f.status, "status", "", "failed, dead, redriven, discarded or processing (default: all)")
	c.Flags().StringVar(&f.eventID, "event", "", "only this event")
	limitFlag(c, &limit, 100, 1_0000)
	complete(c, "status", "failed", "dead", "redriven", "discarded", "processing")
	return c
}

// inboxRows lists at most limit messages, and reports whether there are more.
func inboxRows(ctx context.Context, store *sqlinbox.Store, f inboxFilter, limit int) (all []inboxRow, more bool,
	err error,
) {
	all = []inboxRow{}
	q := inbox.FailedQuery{
		Consumer: f.consumer, Handler: f.handler, Tenant: f.tenant, EventID: f.eventID, Status: inbox.Status(f.status),
	}
	for {
		q.Limit = min(limit-len(all), 1000)
		page, err := store.ListFailed(ctx, q)
		if err != nil {
			return nil, false, err
		}
		all = append(all, converted(page.Events, inboxRowOf)...)
		if q.After = page.Next; page.Next == "" || len(all) == limit {
			return all, page.Next != "", nil
		}
	}
}

func inboxRowOf(e inbox.FailedEvent) inboxRow {
	r := inboxRow{
		Consumer: e.Consumer, Handler: e.Handler, Tenant: e.Tenant, EventID: e.EventID, Type: e.Type, Topic: e.Topic,
		Key: e.PartitionKey, Status: string(e.Status), Attempts: e.Attempts, ErrorCode: e.Code, Error: e.Text,
		ReceivedAt: e.ReceivedAt,
	}
	if e.Located {
		r.Partition, r.Offset = &e.Partition, &e.Offset
	}
	if !e.FailedAt.IsZero() {
		r.FailedAt = &e.FailedAt
	}
	return r
}

func (a *app) printInboxRows(page inboxPage) {
	const heads = "CONSUMER|HANDLER|EVENT|STATUS|TOPIC|TYPE|KEY|ATTEMPTS|RECEIVED|CODE|ERROR"
	printRows(a, "no message", heads, page.Messages,
		func(t *table, r inboxRow) {
			t.add(r.Consumer, r.Handler, r.EventID, r.Status, orDash(r.place()), orDash(r.Type), orDash(short(r.Key)),
				strconv.Itoa(r.Attempts), moment(r.ReceivedAt), orDash(r.ErrorCode), orDash(short(r.Error)))
		})
	a.notePaging(page.paging)
}

// hintInbox warns that no handler has a name of a filter.
func (a *app) hintInbox(ctx context.Context, store *sqlinbox.Store, f inboxFilter) {
	handlers, err := store.Backlog(ctx, 1)
	if err != nil {
		return
	}
	a.hintUnlisted("inbox_failure", "consumer", f.consumer, "outbox inbox", converted(handlers,
		func(b inbox.Backlog) string { return b.Consumer }))
	a.hintUnlisted("inbox_failure", "handler", f.handler, "outbox inbox", converted(handlers,
		func(b inbox.Backlog) string { return b.Handler }))
}

// inboxChange is what `outbox inbox redrive` and `outbox inbox discard` print.
type inboxChange struct {
	DryRun   bool `json:"dry_run"`
	Messages int  `json:"messages"`
	Changed  int  `json:"changed"`
}

// inboxMutation is redrive or discard of dead messages.
type inboxMutation struct {
	inboxFilter
	who
	name string
	all  bool
	do   func(s *sqlinbox.Store, ctx context.Context, keys []inbox.Key, actor, reason string) (int, error)
}

func (a *app) inboxRedriveCommand() *cobra.Command {
	return a.inboxMutationCommand(inboxMutation{name: "redrive", do: (*sqlinbox.Store).Redrive},
		"Let dead messages be processed when they are delivered again",
		`redrive lets dead messages be processed, with fresh attempts, when the broker delivers them again. It
delivers nothing, because the inbox has no payloads: outbox inbox release delivers the messages of a
poison queue. If the consumers have a Cache, call Inbox.Redrive in the service, or empty the cache.`)
}

func (a *app) inboxDiscardCommand() *cobra.Command {
	return a.inboxMutationCommand(inboxMutation{name: "discard", do: (*sqlinbox.Store).Discard},
		"End dead messages without processing them",
		`discard ends dead messages for good: when one is delivered again, it is acknowledged as a duplicate.
A copy in a poison queue stays there.`)
}

func (a *app) inboxMutationCommand(m inboxMutation, shortText, long string) *cobra.Command {
	c := &cobra.Command{
		Use:     m.name + " --consumer NAME (EVENT... | --all) --reason TEXT",
		Short:   shortText,
		Long:    long,
		Example: "  outbox inbox " + m.name + " --consumer mailer --all --dry-run",
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case m.consumer == "":
				return usage("--consumer is missing: `outbox inbox` lists them")
			case m.all == (len(args) > 0):
				return usage("name the messages: ids of events, or --all")
			}
			if err := m.check(); err != nil {
				return err
			}
			return a.withInbox(c, func(ctx context.Context, db *database, store *sqlinbox.Store) error {
				return a.inboxMutate(ctx, db, store, m, args)
			})
		},
	}
	m.inboxFilter.flags(c)
	m.who.flags(c)
	c.Flags().BoolVar(&m.all, "all", false, "everything dead that the filter selects")
	m.dryRunFlag(c)
	return c
}

func (a *app) inboxMutate(
	ctx context.Context, db *database, store *sqlinbox.Store, m inboxMutation, ids []string,
) error {
	keys, err := deadKeys(ctx, store, m.inboxFilter, ids)
	if err != nil {
		return err
	}
	if len(keys) == 0 {
		a.hintInbox(ctx, store, m.inboxFilter)
	}
	done := inboxChange{DryRun: m.dryRun, Messages: len(keys)}
	if !a.json {
		a.sayf("%s: %s of consumer %s\n", m.name, many(len(keys), "dead message"), m.consumer)
	}
	if len(keys) > 0 && !m.dryRun {
		ask := m.name + " " + many(len(keys), "message")
		if err := a.confirm(ctx, m.who, a.tables(db, "inbox"), ask); err != nil {
			return err
		}
		for chunk := range slices.Chunk(keys, 500) {
			n, e := m.do(store, ctx, chunk, m.actor, m.reason)
			if done.Changed += n; e != nil {
				err = e
				break
			}
		}
	}
	perr := a.print(done, func() {
		if !m.dryRun {
			a.sayf("%s changed\n", many(done.Changed, "message"))
		}
	})
	if m.name == "redrive" && done.Changed > 0 {
		a.note("nothing is delivered by this: `outbox inbox release` delivers the messages of a poison queue. " +
			"Without one, reset the consumer group")
	}
	switch {
	case err != nil && done.Changed > 0:
		return exit(ExitPartial, "%d of %d messages are changed; repeat the command for the others: %w", done.Changed,
			done.Messages, err)
	case err != nil:
		return err
	case m.dryRun && missing(keys, ids):
		return exit(ExitPartial, "%d of %d messages would be changed: the others are not dead", done.Messages,
			max(done.Messages, len(ids)))
	case !m.dryRun && (done.Changed < done.Messages || missing(keys, ids)):
		return exit(ExitPartial, "%d of %d messages are changed: the others are not dead", done.Changed,
			max(done.Messages, len(ids)))
	}
	return perr
}

// deadKeys reads the dead messages of a consumer, only those with the ids if there are any.
func deadKeys(ctx context.Context, store *sqlinbox.Store, f inboxFilter, ids []string) (keys []inbox.Key, err error) {
	q := inbox.DeadQuery{Consumer: f.consumer, Handler: f.handler, Limit: 1000}
	for {
		page, err := store.ListDead(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, e := range page {
			if (f.tenant == "" || e.Tenant == f.tenant) && (len(ids) == 0 || slices.Contains(ids, e.EventID)) {
				keys = append(keys, e.Key)
			}
		}
		if len(page) < q.Limit {
			return keys, nil
		}
		q.After = &page[len(page)-1]
	}
}

// missing reports whether an id belongs to no key.
func missing(keys []inbox.Key, ids []string) bool {
	return slices.ContainsFunc(ids, func(id string) bool {
		return !slices.ContainsFunc(keys, func(k inbox.Key) bool { return k.EventID == id })
	})
}
