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
		Long: `audit lists what people did, the newest first. A page may be short: its last line says how to go
on. The actions:

  one row for each event:    redrive, discard, replay, edit, erase, release, reveal (a payload seen)
  one row for each command:  plan, run-plan, pause-plan, cancel-plan, pause, resume, rate, note-group,
                             mute-group, unmute-group, declare-window, withdraw-window, reset-keys`,
		Example: "  outbox audit --actor ada --since 24h",
		Args:    cobra.NoArgs,
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
	flags.StringVar(&q.Topic, "topic", "", "only of this topic")
	flags.Var((*span)(&since), "since", "only of the last time, such as 24h")
	flags.Int64Var(&q.Before, "after", 0, "the next page")
	limitFlag(c, &q.Limit, 100, 1000)
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
