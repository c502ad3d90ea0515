package relay_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// damaged is a table with some events that cannot be read.
type damaged struct {
	core.Repository
	mended atomic.Bool
}

func (r *damaged) look(rows []core.Claimed, err error) ([]core.Claimed, error) {
	for i := range rows {
		if rows[i].Event.AggregateVersion == 13 && !r.mended.Load() {
			rows[i].Err = errors.New("headers are no JSON object")
		}
	}
	return rows, err
}

func (r *damaged) ClaimUnordered(ctx context.Context, req core.ClaimRequest) ([]core.Claimed, error) {
	return r.look(r.Repository.ClaimUnordered(ctx, req))
}

func (r *damaged) ClaimHeads(ctx context.Context, req core.ClaimRequest,
	after core.KeyID,
) ([]core.Claimed, core.KeyID, error) {
	rows, next, err := r.Repository.ClaimHeads(ctx, req, after)
	rows, err = r.look(rows, err)
	return rows, next, err
}

func (r *damaged) ClaimKey(ctx context.Context, req core.ClaimRequest, lane core.KeyID) ([]core.Claimed, error) {
	return r.look(r.Repository.ClaimKey(ctx, req, lane))
}

// An event that cannot be read becomes DEAD with a code of its own. It stops only its key.
func TestUndecodableRow(t *testing.T) {
	for _, policy := range []core.DeadPolicy{core.BlockKey, core.SkipDead} {
		bubble(t, fmt.Sprint(policy), func(t *testing.T) {
			repo, pub := outboxtest.NewRepository(), &outboxtest.Publisher{}
			table := &damaged{Repository: repo}
			producer := join(t, repo, pub, core.Config{DeadPolicy: policy})
			w := join(t, repo, pub, core.Config{Repository: table, DeadPolicy: policy})
			for v := range int64(20) {
				producer.publish(core.Event{Type: "a", Key: "k", AggregateVersion: v},
					core.Event{Type: "a", AggregateVersion: v},
					core.Event{Type: "a", Key: fmt.Sprint(v)})
			}
			w.run()
			time.Sleep(10 * time.Second)
			blocked := 6
			if policy == core.SkipDead {
				blocked = 0
			}
			got := w.statuses()
			if got[outboxtest.StatusDead] != 2 || got[outboxtest.StatusNew] != blocked ||
				got[outboxtest.StatusDone] != 58-blocked {
				t.Fatalf("rows by status: %v", got)
			}
			dead, err := w.ob.ListDead(t.Context(), core.DeadQuery{})
			if err != nil || len(dead) != 2 {
				t.Fatalf("ListDead: %d, %v", len(dead), err)
			}
			var ids []core.RowID
			for _, d := range dead {
				if d.ErrorCode != "undecodable" || d.Error == "" || d.Attempts != 1 {
					t.Errorf("listed as %+v", d)
				}
				ids = append(ids, d.ID)
			}
			table.mended.Store(true)
			if n, err := w.ob.Redrive(t.Context(),
				core.AdminRequest{IDs: ids, Actor: "me", Reason: "mended"}); n != 2 || err != nil {
				t.Fatal(n, err)
			}
			time.Sleep(10 * time.Second)
			equal(t, len(pub.Accepted()), 60, "events arrived")
			if policy == core.BlockKey {
				inOrder(t, pub.Accepted())
			}
		})
	}
}

// torn is a table that loses its answer to the first claims: it returns rows that it has read, with
// the error of their transaction.
type torn struct {
	core.Repository
	left atomic.Int64
}

func (r *torn) tear(rows []core.Claimed, err error) ([]core.Claimed, error) {
	if len(rows) > 0 && r.left.Add(-1) >= 0 {
		return rows, errors.Join(err, errors.New("unexpected EOF"))
	}
	return rows, err
}

func (r *torn) ClaimUnordered(ctx context.Context, req core.ClaimRequest) ([]core.Claimed, error) {
	return r.tear(r.Repository.ClaimUnordered(ctx, req))
}

func (r *torn) ClaimHeads(ctx context.Context, req core.ClaimRequest,
	after core.KeyID,
) ([]core.Claimed, core.KeyID, error) {
	rows, next, err := r.Repository.ClaimHeads(ctx, req, after)
	rows, err = r.tear(rows, err)
	return rows, next, err
}

func (r *torn) ClaimKey(ctx context.Context, req core.ClaimRequest, lane core.KeyID) ([]core.Claimed, error) {
	return r.tear(r.Repository.ClaimKey(ctx, req, lane))
}

// Rows that come with an error are not published. Perhaps no process has claimed them, or another
// one has.
func TestRowsOfAFailedClaimAreNotPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := outboxtest.NewRepository(), &outboxtest.Publisher{}
		table := &torn{Repository: repo}
		table.left.Store(3)
		producer := join(t, repo, pub, core.Config{})
		producer.publish(core.Event{Type: "a"}, core.Event{Type: "a", Key: "k"})
		runOutbox(t, core.Config{Repository: table, Publisher: pub, Relay: relay.Config{ClaimLease: time.Minute}})
		time.Sleep(30 * time.Second)
		equal(t, len(pub.Accepted()), 0, "events of failed claims were published")
		time.Sleep(5 * time.Minute) // their leases end
		equal(t, len(pub.Accepted()), 2, "events arrived")
	})
}
