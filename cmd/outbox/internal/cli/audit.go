package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core"
)

// maxAuditLook is how many audit rows one call of `outbox audit` looks at.
const maxAuditLook = 10_000

// auditRow is an audit row as audit prints it.
type auditRow struct {
	No      int64     `json:"no"`
	At      time.Time `json:"at"`
	Action  string    `json:"action"`
	Actor   string    `json:"actor"`
	Reason  string    `json:"reason"`
	Row     string    `json:"row_id,omitempty"`
	EventID string    `json:"event_id,omitempty"`
	Topic   string    `json:"topic,omitempty"`
	NewID   string    `json:"new_id,omitempty"`
}

func auditRowOf(r core.AuditRecord) auditRow {
	return auditRow{
		No: r.No, At: r.At, Action: r.Action, Actor: r.Actor, Reason: r.Reason, Row: idOrNone(r.RowID),
		EventID: r.EventID, Topic: r.Topic, NewID: idOrNone(r.NewID),
	}
}

func idOrNone(id core.RowID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// auditPage is a page of `outbox audit`.
type auditPage struct {
	Records []auditRow `json:"records"`
	paging
}

// auditFilter selects audit rows.
type auditFilter struct {
	row, action, actor, topic string
	since                     time.Duration
	after                     int64 // the last number of the page before
	limit                     int
}

func (f *auditFilter) match(r core.AuditRecord) bool {
	is := func(want, is string) bool { return want == "" || want == is }
	return is(f.action, r.Action) && is(f.actor, r.Actor) && is(f.topic, r.Topic)
}

func (a *app) auditCommand() *cobra.Command {
	var f auditFilter
	c := &cobra.Command{
		Use:   "audit",
		Short: "List what people did: who, when, why, to which event",
		Long: `audit lists the audit table, the newest row first. --row is served by an index. The other filters are
compared row by row, and then a page may be short: the last line says how to go on.

A redrive, a discard and a replay have a row for each event, and other actions have one row:

  redrive, discard, replay                  an event that a person changed
  plan, run-plan, pause-plan, cancel-plan   a plan; the reason names it
  pause, resume, rate                       a destination, a tenant or everything
  note-group, mute-group, unmute-group      a group of failures
  declare-window, withdraw-window           how long a consumer recognises copies
  reset-keys                                all keys`,
		Example: "  outbox audit --actor ada --since 24h\n  outbox audit --action run-plan\n" +
			"  outbox audit --row 01998b8c-2f6e-8a11-9d3b-8d1c0e3b5a10",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			q := core.AuditQuery{Before: f.after}
			if f.limit < 1 || f.limit > 1000 {
				return usage("--limit %d: it is 1 to 1000", f.limit)
			}
			if f.after < 0 {
				return usage("--after %d: it is negative", f.after)
			}
			if f.row != "" {
				id, err := core.ParseRowID(f.row)
				if err != nil {
					return usage("--row: %w", err)
				}
				q.RowID = id
			}
			return a.withOutbox(c, func(ctx context.Context, _ *database, ob *core.Outbox) error {
				page, err := a.auditPage(ctx, ob, q, f)
				if err != nil {
					return err
				}
				return a.print(page, func() { a.printAudit(page) })
			})
		},
	}
	flags := c.Flags()
	flags.Var((*selector)(&f.row), "row", "only of the row with this id")
	flags.Var((*selector)(&f.action), "action", "only this action, such as redrive, discard, "+core.AuditResetKeys)
	flags.Var((*selector)(&f.actor), "actor", "only what this person did")
	flags.Var((*selector)(&f.topic), "topic", "only events of this topic")
	flags.Var((*span)(&f.since), "since", "only of this last time")
	flags.Int64Var(&f.after, "after", 0, "the next page: what the last line of the page before says")
	flags.IntVar(&f.limit, "limit", 100, "rows on a page, up to 1000")
	return c
}

// auditPage reads until the page is full, nothing is left, or maxAuditLook rows were looked at.
func (a *app) auditPage(
	ctx context.Context, ob *core.Outbox, q core.AuditQuery, f auditFilter,
) (page auditPage, err error) {
	page.Records = []auditRow{}
	var from time.Time
	if f.since > 0 {
		from = a.now().Add(-f.since)
	}
	for looked := 0; looked < maxAuditLook; {
		q.Limit = 1000
		records, err := ob.ListAudit(ctx, q)
		if err != nil {
			return page, err
		}
		for _, r := range records {
			if r.At.Before(from) {
				return page, nil
			}
			if len(page.Records) == f.limit {
				page.paging = pageBehind(q.Before)
				return page, nil
			}
			q.Before = r.No
			if f.match(r) {
				page.Records = append(page.Records, auditRowOf(r))
			}
		}
		if len(records) < q.Limit {
			return page, nil
		}
		looked += len(records)
	}
	page.paging = pageBehind(q.Before)
	return page, nil
}

// pageBehind is the paging behind the row with a number.
func pageBehind(no int64) paging { return paging{More: true, Next: strconv.FormatInt(no, 10)} }

func (a *app) printAudit(page auditPage) {
	if len(page.Records) == 0 {
		a.sayf("nothing is recorded\n")
	} else {
		t := &table{}
		t.add("NO", "AT", "ACTION", "ACTOR", "ROW", "TOPIC", "NEW ROW", "REASON")
		for _, r := range page.Records {
			t.add(strconv.FormatInt(r.No, 10), moment(r.At), r.Action, short(r.Actor), orDash(r.Row), orDash(r.Topic),
				orDash(r.NewID), short(r.Reason))
		}
		t.write(a.Out)
	}
	a.notePaging(page.paging)
}
