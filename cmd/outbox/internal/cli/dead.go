package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core"
)

// deadRow is a dead event as `outbox dead` prints it. The payload is not among its fields.
type deadRow struct {
	ID        string    `json:"id"`
	EventID   string    `json:"event_id"`
	Topic     string    `json:"topic"`
	Type      string    `json:"type"`
	Key       string    `json:"key,omitempty"`
	Tenant    string    `json:"tenant_id,omitempty"`
	Attempts  int       `json:"attempts"`
	CreatedAt time.Time `json:"created_at"`
	ErrorCode string    `json:"error_code"`
	Error     string    `json:"error"`
}

func deadRowOf(d core.DeadEvent) deadRow {
	return deadRow{
		ID: d.ID.String(), EventID: d.Event.ID, Topic: d.Event.Topic, Type: d.Event.Type, Key: d.Event.Key,
		Tenant: d.Event.TenantID, Attempts: d.Attempts, CreatedAt: d.CreatedAt, ErrorCode: d.ErrorCode, Error: d.Error,
	}
}

// deadPage is a page of `outbox dead`.
type deadPage struct {
	Events []deadRow `json:"events"`
	paging
}

func (a *app) deadCommand() *cobra.Command {
	var f deadFilter
	var limit int
	var after string
	c := &cobra.Command{
		Use:     "dead",
		Short:   "List the dead events",
		Long:    `dead lists the dead events without their payloads, the oldest first.`,
		Example: "  outbox dead --topic orders",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			q := core.DeadQuery{Topic: f.topic, Type: f.eventType, TenantID: f.tenant, Limit: limit}
			if after != "" {
				id, err := core.ParseRowID(after)
				if err != nil {
					return usage("--after: %w", err)
				}
				q.After = id
			}
			return a.withOutbox(c, func(ctx context.Context, s *session) error {
				events, err := s.ob.ListDead(ctx, q)
				if err != nil {
					return err
				}
				if len(events) == 0 {
					a.hintUnseen(ctx, s.api, f.filter())
				}
				page := deadPage{Events: converted(events, deadRowOf)}
				page.paging = pageAfter(page.Events, limit, func(r deadRow) string { return r.ID })
				return a.print(page, func() {
					a.printDead(page.Events)
					a.notePaging(page.paging)
				})
			})
		},
	}
	f.flags(c)
	limitFlag(c, &limit, 100, 1000)
	c.Flags().StringVar(&after, "after", "", "the next page")
	return c
}

func (a *app) printDead(events []deadRow) {
	printRows(a, "no event is dead", "ID|TOPIC|TYPE|KEY|ATTEMPTS|CREATED|CODE|ERROR", events,
		func(t *table, r deadRow) {
			t.add(r.ID, r.Topic, r.Type, orDash(r.Key), strconv.Itoa(r.Attempts), moment(r.CreatedAt), r.ErrorCode,
				short(r.Error))
		})
}
