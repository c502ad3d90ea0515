package sqloutbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/mark"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

var _ core.InsertDeferrer = (*Repository)(nil)

// joiner is a database whose INSERT of a batch is one statement.
type joiner interface {
	// statement returns the INSERT of these rows of a batch, which are one chunk. lanes are the
	// lanes of the returned rows, for scanLane.
	statement(b *batch, rows []int) (text string, args []any, lanes []laneUse)
}

// into identifies inserts that can be one statement.
type into struct {
	repository *Repository
	node       string
	lease      time.Duration
}

// deferred is an INSERT that a connection may keep.
type deferred struct {
	batch   *batch
	claimNo int64 // of the statement that it becomes part of
	places  []core.Inserted
}

// InsertOrDefer implements core.InsertDeferrer. Connections of module pgxoutbox keep rows. For all
// others it is Insert.
func (r *Repository) InsertOrDefer(
	ctx context.Context, tx core.Tx, req core.InsertRequest, d core.Deferral,
) (places []core.Inserted, later bool, err error) {
	size := 0
	for i := range req.Rows {
		size += len(req.Rows[i].Event.Payload)
	}
	if _, ok := r.database.(joiner); !ok || len(req.Rows) > chunkRows || size > chunkBytes {
		places, err = r.Insert(ctx, tx, req)
		return places, false, err
	}
	b, err := r.prepare(tx, req)
	if b == nil || err != nil {
		return nil, false, err
	}
	own := &deferred{batch: b, claimNo: req.ClaimNo}
	offer := &sqltx.DeferredInsert{
		Into: into{r, req.Node, req.Lease}, Names: []string{strings.ToLower(r.names.prefix)},
		Keep: mark.Keep(ctx), Rows: len(req.Rows), Bytes: size,
		Join: r.join, Sending: func() { d.Sending(own.claimNo) },
		Done: func(err error) { d.Done(own.places, err) }, Own: own,
	}
	err = r.database.insert(offer.Offer(ctx), tx, b)
	switch {
	case offer.Taken(): // an error on the way back is none of the rows
		return nil, true, nil
	case err != nil:
		return nil, false, insertError(err)
	}
	return b.places, false, nil
}

// join makes one statement of inserts that wait. The locks of all keys are then taken in one order.
func (r *Repository) join(all []*sqltx.DeferredInsert) (sqltx.JoinedInsert, error) {
	first, _ := all[0].Own.(*deferred)
	b := first.batch
	query, args := all[0].Statement()
	lanes := b.lanes
	if len(all) > 1 {
		req := core.InsertRequest{Node: b.req.Node, ClaimNo: b.req.ClaimNo, Lease: b.req.Lease}
		for _, one := range all {
			own, _ := one.Own.(*deferred)
			own.claimNo = req.ClaimNo
			req.Rows = append(req.Rows, own.batch.req.Rows...)
		}
		var err error
		if b, err = newBatch(req); err != nil {
			return sqltx.JoinedInsert{}, err
		}
		database, _ := r.database.(joiner)
		query, args, lanes = database.statement(b, b.order)
	}
	return sqltx.JoinedInsert{
		Query: query, Args: args,
		Read: func(rows core.Rows) error {
			for rows.Next() {
				if err := b.scanLane(rows, lanes); err != nil {
					return err
				}
			}
			return b.give(all)
		},
		Wrap: func(err error) error {
			return errtext.Errorf("outbox: insert %s: %w", b.describe(), insertError(err))
		},
	}, nil
}

var errNoPlace = errors.New("sqloutbox: the INSERT did not return the place of a row in its key")

// give distributes the places to the inserts.
func (b *batch) give(all []*sqltx.DeferredInsert) error {
	for i := range b.places {
		if !b.req.Rows[i].KeyID.IsZero() && b.places[i].KeySeq == 0 {
			return errNoPlace
		}
	}
	places := b.places
	for _, one := range all {
		own, _ := one.Own.(*deferred)
		own.places, places = places[:one.Rows:one.Rows], places[one.Rows:]
	}
	return nil
}

// describe names the events of a batch for an error.
func (b *batch) describe() string {
	const most = 8
	if len(b.req.Rows) == 1 {
		e := &b.req.Rows[0].Event
		return fmt.Sprintf("event %s for topic %q", e.ID, e.Topic)
	}
	ids := make([]string, 0, most)
	for i := range b.req.Rows[:min(most, len(b.req.Rows))] {
		ids = append(ids, b.req.Rows[i].Event.ID)
	}
	more := ""
	if n := len(b.req.Rows) - most; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return "events " + strings.Join(ids, ", ") + more
}
