package ops_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// parkedQueue is a poison queue in memory. A message that is sent is handled at once.
type parkedQueue struct {
	waiting []inbox.Message
	next    int
	acked   int
	handle  func(topic string, msg inbox.Message) error
}

func (q *parkedQueue) Next(context.Context) (inbox.Message, error) {
	if q.next == len(q.waiting) {
		return inbox.Message{}, io.EOF
	}
	q.next++
	return q.waiting[q.next-1], nil
}

func (q *parkedQueue) Ack(context.Context, inbox.Message) error { q.acked++; return nil }

func (q *parkedQueue) Send(_ context.Context, topic string, msg inbox.Message) error {
	return q.handle(topic, msg)
}

// Each message has its audit row before it is sent. The row of one with another payload has the
// difference.
func TestRelease(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w, ctx := newWorld(t, db, core.Config{}), t.Context()
		in, _, _ := w.besides(db)
		row, err := core.NewRowID(core.NewEventID(), "orders")
		fixture.NoError(t, err)
		q := &parkedQueue{}
		for _, id := range []string{"e-1", "e-2"} {
			fails(t, in, "billing", "charge", "", id, "no price", true)
			q.waiting = append(q.waiting, inbox.Message{Payload: []byte(`{"total":"7"}`), Headers: map[string]string{
				core.HeaderEventID: id, core.HeaderRowID: row.String(), core.HeaderAggregateType: "order",
				core.HeaderAggregateID: "42", inbox.HeaderParkedTopic: "orders", inbox.HeaderParkedHandler: "charge",
				inbox.HeaderParkedReason: "no price",
			}})
		}
		release := func(change func(*ops.ReleaseRequest)) (inbox.Released, error) {
			q.next, q.acked = 0, 0
			req := ops.ReleaseRequest{Consumer: "billing"}
			req.From, req.To, req.Actor, req.Reason = q, q, "ada", "prices are there"
			change(&req)
			return w.api.Release(ctx, req)
		}
		audited := func() []core.AuditRecord {
			page, err := w.api.Audit(ctx, ops.AuditQuery{Action: ops.AuditRelease})
			fixture.NoError(t, err)
			return page.Records
		}
		got, err := release(func(req *ops.ReleaseRequest) {
			req.DryRun, req.To, req.Actor, req.Reason = true, nil, "", ""
		})
		fixture.Check(t, err == nil && got.Sent == 2 && len(got.Groups) == 1 && q.acked == 0 && len(audited()) == 0,
			"dry run: %+v, %v", got, err)
		sent := 0
		q.handle = func(topic string, msg inbox.Message) error {
			sent++
			list := audited()
			r := list[0]
			fixture.Check(t, len(list) == sent && r.EventID == msg.Headers[core.HeaderEventID] && r.Topic == topic &&
				r.Actor == "ada" && r.Reason == "prices are there" && r.RowID == row, "audit %+v", list)
			processed(t, w, in, "billing", "charge", msg.Headers[core.HeaderEventID])
			return nil
		}
		got, err = release(func(req *ops.ReleaseRequest) {
			req.Edit = func(inbox.Parked) ([]byte, error) { return []byte(`{"total":7}`), nil }
			req.Limit = 1
		})
		fixture.Check(t, err == nil && got.Sent == 1 && got.Processed == 1 && q.acked == 1, "one: %+v, %v", got, err)
		n := fixture.Count(t, w.Pool, "SELECT count(*) FROM outbox_audit WHERE action = 'release' AND "+
			`detail LIKE 'of "order" "42", tenant ""%' AND detail LIKE '%-   "total": "7"%+   "total": 7%'`)
		fixture.Check(t, n == 1, "%d audit rows have the difference", n)
		got, err = release(func(*ops.ReleaseRequest) {})
		fixture.Check(t, err == nil && got.Sent == 1 && got.Done == 1 && q.acked == 2, "the rest: %+v, %v", got, err)
		n = fixture.Count(t, w.Pool, "SELECT count(*) FROM outbox_audit WHERE action = 'release' AND detail IS NULL")
		fixture.Check(t, n == 1, "%d audit rows have none", n)
	})
}

func TestReleaseIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testdb.SQLite(t), core.Config{})
	q := &parkedQueue{}
	var req ops.ReleaseRequest
	req.From, req.To, req.Actor, req.Reason = q, q, "ada", "why"
	_, err := w.api.Release(t.Context(), req)
	fixture.Check(t, errors.Is(err, inbox.ErrInvalidRequest) && strings.Contains(err.Error(), "Consumer"),
		"no consumer: %v", err)
	req.Consumer, req.Reason = "billing", strings.Repeat("x", 2000)
	_, err = w.api.Release(t.Context(), req)
	fixture.Check(t, errors.Is(err, core.ErrInvalidRequest), "a long reason: %v", err)
	req.From = nil
	_, err = w.api.Release(t.Context(), req)
	fixture.Check(t, errors.Is(err, inbox.ErrInvalidRequest), "no queue: %v", err)
}
