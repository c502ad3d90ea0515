package cli

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
)

// inboxStatuses are the statuses of the messages in the table inbox_failure, as inboxStatusOf
// returns them.
var inboxStatuses = map[string]int{"discarded": -1, "redriven": 0, "processing": 1, "failed": 3, "dead": 4}

// inboxStatusOf is the status of a row. A discarded message is stored like a redriven one, with
// another code.
const inboxStatusOf = "CASE WHEN status = 0 AND COALESCE(last_error_code, '') = 'discarded' THEN -1 ELSE status END"

func inboxStatus(n int) string {
	for name, status := range inboxStatuses {
		if status == n {
			return name
		}
	}
	return strconv.Itoa(n)
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
		Short: "Count the messages that consumers failed with, list them, and redrive or discard the dead ones",
		Long: `inbox counts the messages that the handlers of consumers have failed with:

  failed      will be tried again when it is delivered again
  dead        given up: waits for a person
  redriven    a person wants it processed: waits for its delivery
  processing  another program wrote that it works on it

At most 100,000 are counted; a plus behind a number says that there may be more. Messages that were
processed or discarded are not among them.`,
		Example: "  outbox inbox\n  outbox inbox list --status dead\n" +
			"  outbox inbox redrive --consumer mailer --all --reason 'bug 17 repaired'",
	}, a.inboxListCommand(), a.inboxRedriveCommand(), a.inboxDiscardCommand())
	c.Args = cobra.NoArgs
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.withInbox(c, func(ctx context.Context, db *database, _ *sqlinbox.Store) error {
			b, err := a.inboxBacklog(ctx, db)
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
	c.Flags().Int64Var(&maxDead, "max-dead", -1, "exit code 3 if more messages are dead; -1: any number")
	return c
}

// withInbox runs fn with the tables of the inbox, whose prefix is that of --prefix, or none.
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

func (a *app) inboxBacklog(ctx context.Context, db *database) (b inboxBacklog, err error) {
	b = inboxBacklog{Database: db.name, Handlers: []inboxState{}}
	now, err := db.now(ctx)
	if err != nil {
		return b, err
	}
	query := "SELECT consumer, handler, status, COUNT(*), MIN(" + db.micros("received_at") +
		") FROM (SELECT consumer, handler, status, received_at FROM " + db.quote(a.schema, a.prefix+"inbox_failure") +
		" WHERE " + inboxStatusOf + " >= 0 LIMIT " + strconv.Itoa(maxCounted) +
		") f GROUP BY consumer, handler, status ORDER BY consumer, handler"
	var total int64
	err = db.each(ctx, query, nil, func(rows *sql.Rows) error {
		var s inboxState
		var status int
		var n int64
		var received nullMicros
		if err := rows.Scan(&s.Consumer, &s.Handler, &status, &n, &received); err != nil {
			return err
		}
		last := len(b.Handlers) - 1
		if last < 0 || b.Handlers[last].Consumer != s.Consumer || b.Handlers[last].Handler != s.Handler {
			b.Handlers = append(b.Handlers, s)
			last++
		}
		h := &b.Handlers[last]
		h.OldestSecs = max(h.OldestSecs, now.Sub(received.Time).Seconds())
		switch status {
		case inboxStatuses["redriven"]:
			h.Redriven += n
		case inboxStatuses["processing"]:
			h.Processing += n
		case inboxStatuses["failed"]:
			h.Failed += n
		case inboxStatuses["dead"]:
			h.Dead += n
			b.Dead += n
		}
		total += n
		return nil
	})
	b.Capped = total >= maxCounted
	return b, err
}

func (a *app) printInboxBacklog(b inboxBacklog) {
	a.sayf("%s\n", b.Database)
	if len(b.Handlers) == 0 {
		a.sayf("no message has failed\n")
		return
	}
	num := func(n int64) string {
		if b.Capped {
			return strconv.FormatInt(n, 10) + "+"
		}
		return strconv.FormatInt(n, 10)
	}
	t := &table{}
	t.add("CONSUMER", "HANDLER", "FAILED", "DEAD", "REDRIVEN", "PROCESSING", "OLDEST")
	for _, s := range b.Handlers {
		dead := num(s.Dead)
		if s.Dead > 0 {
			dead = a.paint(red, dead)
		}
		t.add(s.Consumer, s.Handler, num(s.Failed), dead, num(s.Redriven), num(s.Processing),
			age(seconds(s.OldestSecs)))
	}
	t.write(a.Out)
}

func (f *inboxFilter) flags(c *cobra.Command) {
	c.Flags().Var((*selector)(&f.consumer), "consumer", "only messages of this consumer")
	c.Flags().Var((*selector)(&f.handler), "handler", "only messages of this handler")
	c.Flags().Var((*selector)(&f.tenant), "tenant", "only messages of this tenant")
}

func (a *app) inboxListCommand() *cobra.Command {
	var f inboxFilter
	var limit int
	c := &cobra.Command{
		Use:   "list",
		Short: "List messages that consumers failed with, those that were received first at the top",
		Long: `list lists the messages that handlers have failed with, each with its last failure. A message that
a person redrove or discarded has the actor and the reason in its place. The inbox has no payloads:
they are in the broker, or in its dead-letter queue.`,
		Example: "  outbox inbox list --status dead --consumer mailer\n" +
			"  outbox inbox list --event 01998b8c-2f6e-7a11-9d3b-8d1c0e3b5a10",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if _, ok := inboxStatuses[f.status]; !ok && f.status != "" {
				return usage("--status %q: it is failed, dead, redriven, discarded or processing", f.status)
			}
			if limit < 1 || limit > 10_000 {
				return usage("--limit %d: it is 1 to 10000", limit)
			}
			return a.withInbox(c, func(ctx context.Context, db *database, _ *sqlinbox.Store) error {
				rows, err := a.inboxRows(ctx, db, f, limit)
				if err != nil {
					return err
				}
				if len(rows) == 0 {
					a.hintInbox(ctx, db, f)
				}
				page := inboxPage{Messages: rows, paging: paging{More: len(rows) == limit}}
				return a.print(page, func() { a.printInboxRows(page) })
			})
		},
	}
	f.flags(c)
	c.Flags().StringVar(&f.status, "status", "", "failed, dead, redriven, discarded or processing (default: all)")
	c.Flags().Var((*selector)(&f.eventID), "event", "only this event")
	c.Flags().IntVar(&limit, "limit", 100, "messages to list, up to 10000")
	_ = c.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(
		[]string{"failed", "dead", "redriven", "discarded", "processing"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (a *app) inboxRows(ctx context.Context, db *database, f inboxFilter, limit int) (all []inboxRow, err error) {
	query := "SELECT consumer, handler, tenant_id, event_id, COALESCE(event_type, ''), COALESCE(source_topic, ''), " +
		"source_partition, source_offset, COALESCE(partition_key, ''), " + inboxStatusOf + ", attempts, " +
		"COALESCE(last_error_code, ''), COALESCE(last_error, ''), " + db.micros("received_at") + ", " +
		db.micros("failed_at") + " FROM " + db.quote(a.schema, a.prefix+"inbox_failure")
	var conds []string
	var args []any
	for _, c := range []struct{ column, value string }{
		{"consumer", f.consumer},
		{"handler", f.handler},
		{"tenant_id", f.tenant},
		{"event_id", f.eventID},
	} {
		if c.value != "" {
			conds, args = append(conds, c.column+" = ?"), append(args, c.value)
		}
	}
	if f.status != "" {
		status := inboxStatuses[f.status]
		conds = append(conds, "status = "+strconv.Itoa(max(status, 0)), inboxStatusOf+" = "+strconv.Itoa(status))
	}
	if len(conds) > 0 {
		query += " WHERE " + strings.Join(conds, " AND ")
	}
	query += " ORDER BY received_at, consumer, handler, tenant_id, event_id LIMIT " + strconv.Itoa(limit)
	all = []inboxRow{}
	err = db.each(ctx, db.bind(query), args, func(rows *sql.Rows) error {
		var r inboxRow
		var status int
		var received, failed nullMicros
		if err := rows.Scan(&r.Consumer, &r.Handler, &r.Tenant, &r.EventID, &r.Type, &r.Topic, &r.Partition, &r.Offset,
			&r.Key, &status, &r.Attempts, &r.ErrorCode, &r.Error, &received, &failed); err != nil {
			return err
		}
		r.Status, r.ReceivedAt, r.FailedAt = inboxStatus(status), received.Time, failed.orNil()
		all = append(all, r)
		return nil
	})
	return all, err
}

func (a *app) printInboxRows(page inboxPage) {
	if len(page.Messages) == 0 {
		a.sayf("no message\n")
		return
	}
	t := &table{}
	t.add("CONSUMER", "HANDLER", "EVENT", "STATUS", "TOPIC", "TYPE", "KEY", "ATTEMPTS", "RECEIVED", "CODE", "ERROR")
	for _, r := range page.Messages {
		t.add(r.Consumer, r.Handler, r.EventID, r.Status, orDash(r.place()), orDash(r.Type), orDash(short(r.Key)),
			strconv.Itoa(r.Attempts), moment(r.ReceivedAt), orDash(r.ErrorCode), orDash(short(r.Error)))
	}
	t.write(a.Out)
	a.notePaging(page.paging)
}

// hintInbox says which name of a filter no message has.
func (a *app) hintInbox(ctx context.Context, db *database, f inboxFilter) {
	a.hintUnlisted(ctx, db, a.prefix+"inbox_failure", "consumer", f.consumer, "outbox inbox")
	a.hintUnlisted(ctx, db, a.prefix+"inbox_failure", "handler", f.handler, "outbox inbox")
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
		`redrive lets dead messages of a consumer be processed, with fresh attempts, when they are delivered
again: from the dead-letter queue, or by a replay. It delivers nothing, because the inbox has no
payloads. In the service, Inbox.Release of module inbox redrives the messages of a poison queue and
delivers them. Actor and reason are stored with the message until then. A message that is never to be
processed is for: outbox inbox discard.

If the consumers have a Cache in front of the table, redrive in the service (Inbox.Redrive), or empty
the cache.`)
}

func (a *app) inboxDiscardCommand() *cobra.Command {
	return a.inboxMutationCommand(inboxMutation{name: "discard", do: (*sqlinbox.Store).Discard},
		"End dead messages without processing them",
		`discard ends dead messages of a consumer. When one is delivered again it is acknowledged and
not handled, as one that was processed. It cannot be redriven. Actor and reason are stored with the
message until the retention of the consumer ends. A copy in a dead-letter queue stays there. If the
consumers have a Cache in front of the table, there is nothing to do about it.`)
}

func (a *app) inboxMutationCommand(m inboxMutation, shortText, long string) *cobra.Command {
	c := &cobra.Command{
		Use:   m.name + " --consumer NAME (EVENT... | --all) --reason TEXT",
		Short: shortText,
		Long: long + `

Without a terminal the command needs --yes, or it is refused (exit code 5). Exit code 4 says that
fewer messages were changed than were named or selected, or with --dry-run that fewer would be.`,
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
	c.Flags().BoolVar(&m.all, "all", false, "every dead message that the filter selects")
	m.dryRunFlag(c, "count, and change nothing")
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
		a.hintInbox(ctx, db, m.inboxFilter)
	}
	done := inboxChange{DryRun: m.dryRun, Messages: len(keys)}
	if !a.json {
		a.sayf("%s: %s of consumer %s\n", m.name, many(len(keys), "dead message"), m.consumer)
	}
	if len(keys) > 0 && !m.dryRun {
		ask := fmt.Sprintf("%s %s of %s?", m.name, many(len(keys), "message"), db.name)
		if err := a.confirm(m.who, ask); err != nil {
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
		a.note("nothing is delivered by this: Inbox.Release in the service delivers the messages of a poison queue. " +
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

// deadKeys reads the dead messages of a consumer, or those of them with the ids.
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

// missing reports whether an id is that of no key.
func missing(keys []inbox.Key, ids []string) bool {
	return slices.ContainsFunc(ids, func(id string) bool {
		return !slices.ContainsFunc(keys, func(k inbox.Key) bool { return k.EventID == id })
	})
}
