package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// auditPage is a page of `outbox audit`.
type auditPage struct {
	Records []core.AuditRecord `json:"records"`
	paging
}

func (a *app) auditCommand() *cobra.Command {
	var q ops.AuditQuery
	var row string
	var since time.Duration
	c := &cobra.Command{
		Use:   "audit",
		Short: "List what people did: who, when, why, to which event",
		Long: `audit lists the audit table, the newest row first. --row is served by an index. The other filters are
compared row by row, and then a page may be short: the last line says how to go on.

A redrive, a discard, a replay, an edit and an erasure have a row for each event. Other actions have one:

  redrive, discard, replay, edit, erase     an event that a person changed
  reveal                                    an event whose payload a person has seen on a page
  plan, run-plan, pause-plan, cancel-plan   a plan; the reason names it
  pause, resume, rate                       a destination, a tenant or everything
  note-group, mute-group, unmute-group      a group of failures
  declare-window, withdraw-window           how long a consumer recognises copies
  reset-keys                                all keys`,
		Example: "  outbox audit --actor ada --since 24h\n  outbox audit --action run-plan\n" +
			"  outbox audit --row 01998b8c-2f6e-8a11-9d3b-8d1c0e3b5a10",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if q.Before < 0 {
				return usage("--after %d: it is negative", q.Before)
			}
			if row != "" {
				id, err := core.ParseRowID(row)
				if err != nil {
					return usage("--row: %w", err)
				}
				q.RowID = id
			}
			if since > 0 {
				q.Since = a.now().Add(-since)
			}
			return a.withOutbox(c, func(ctx context.Context, s *session) error {
				found, err := s.api.Audit(ctx, q)
				if err != nil {
					return err
				}
				page := auditPage{Records: found.Records}
				if found.Next != 0 {
					page.paging = paging{More: true, Next: strconv.FormatInt(found.Next, 10)}
				}
				return a.print(page, func() { a.printAudit(page) })
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&row, "row", "", "only of the row with this id")
	flags.StringVar(&q.Action, "action", "", "only this action, such as redrive, discard, "+core.AuditResetKeys)
	flags.StringVar(&q.Actor, "actor", "", "only what this person did")
	flags.StringVar(&q.Topic, "topic", "", "only events of this topic")
	flags.Var((*span)(&since), "since", "only of this last time")
	flags.Int64Var(&q.Before, "after", 0, "the next page: what the last line of the page before says")
	limitFlag(c, &q.Limit, 100, 1000, "rows on a page")
	return c
}

func (a *app) printAudit(page auditPage) {
	printRows(a, "nothing is recorded", "NO|AT|ACTION|ACTOR|ROW|TOPIC|NEW ROW|REASON", page.Records,
		func(t *table, r core.AuditRecord) {
			t.add(strconv.FormatInt(r.No, 10), moment(r.At), r.Action, short(r.Actor), idOrDash(r.RowID),
				orDash(r.Topic), idOrDash(r.NewID), short(r.Reason))
		})
	a.notePaging(page.paging)
}

func idOrDash(id core.RowID) string {
	if id.IsZero() {
		return "-"
	}
	return id.String()
}
