package sqlinbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

// batchSize is how many events one statement inserts. Their parameters are far fewer than any
// database allows.
const batchSize = 500

// BeginBatch is Begin for many events of one consumer and handler. One statement writes up to 500
// of them (40 on SQLite). It takes the keys in ascending order, so that two batches wait for each
// other and do not deadlock. A further copy of an event that is fresh in the batch is
// inbox.StateProcessed; of any other event it has the same state as the first.
func (s *Store) BeginBatch(ctx context.Context, tx core.Tx, events []inbox.Event) ([]inbox.State, error) {
	const what = "begin a batch"
	states := make([]inbox.State, len(events))
	order := make([]int, 0, len(events))
	for n, e := range events {
		if err := e.Validate(); err != nil {
			return nil, tables.Wrap(what, fmt.Errorf("event %d: %w", n, err))
		}
		if e.Consumer != events[0].Consumer || e.Handler != events[0].Handler {
			return nil, tables.Wrap(what, errors.New("its events are for more than one consumer or handler: "+
				"give each a batch of its own"))
		}
		order = append(order, n)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(events[a].Tenant, events[b].Tenant),
			cmp.Compare(events[a].EventID, events[b].EventID))
	})
	first, copies := make(map[inbox.Key]int, len(order)), []int(nil)
	order = slices.DeleteFunc(order, func(n int) bool {
		_, again := first[events[n].Key]
		if again {
			copies = append(copies, n)
		} else {
			first[events[n].Key] = n
		}
		return again
	})
	if err := s.join(ctx, tx); err != nil {
		return nil, tables.Wrap(what, err)
	}
	if err := s.sql.database.stillOpen(ctx, tx); err != nil {
		return nil, tables.Wrap(what, sqlstore.TxError(err))
	}
	if len(events) == 0 {
		return states, nil
	}
	h := s.handlers.of(events[0].Consumer, events[0].Handler)
	for chunk := range slices.Chunk(order, s.sql.database.batchSize()) {
		if err := s.beginChunk(ctx, tx, h, events, chunk, states); err != nil {
			return nil, tables.Wrap(what, sqlstore.TxError(err))
		}
	}
	for _, n := range copies {
		states[n] = states[first[events[n].Key]]
		if states[n] == inbox.StateFresh {
			states[n] = inbox.StateProcessed // commits with the first
		}
	}
	return states, nil
}

// beginChunk fills in the states of a chunk. Its events are all different.
func (s *Store) beginChunk(ctx context.Context, tx core.Tx, h *handler, events []inbox.Event, chunk []int,
	states []inbox.State,
) error {
	at := make(map[inbox.Key]int, len(chunk))
	chosen := make([]inbox.Event, len(chunk))
	for i, n := range chunk {
		at[events[n].Key], chosen[i] = n, events[n]
	}
	fresh := func(k inbox.Key) { states[at[k]] = inbox.StateFresh }
	see := func(keys []inbox.Key, show func(inbox.Key, seenBefore) error) error {
		return s.seeRows(ctx, tx, h, keys, show)
	}
	if err := s.sql.database.insertRows(ctx, tx, h, chosen, fresh, see); err != nil {
		return err
	}
	var rest []inbox.Key
	for _, n := range chunk {
		if states[n] == 0 {
			rest = append(rest, events[n].Key)
		}
	}
	return see(rest, func(k inbox.Key, r seenBefore) (err error) {
		states[at[k]] = inbox.StateProcessed
		if r.processed == 0 {
			states[at[k]], _, err = s.decide(ctx, tx, h, k)
		}
		return err
	})
}

// seeRows locks the rows of the keys and then shows each. If the row of a key is gone, seeRows
// returns an error, and the transaction is run again.
func (s *Store) seeRows(ctx context.Context, tx core.Tx, h *handler, keys []inbox.Key,
	show func(inbox.Key, seenBefore) error,
) error {
	type seenRow struct {
		key inbox.Key
		row seenBefore
	}
	for chunk := range slices.Chunk(keys, sqlstore.DeleteChunk) {
		text, args := s.sql.database.seeRows(h, chunk)
		found := make([]seenRow, 0, len(chunk))
		err := sqlkit.EachRow(ctx, tx, text, args, func(rows core.Rows) error {
			r := seenRow{key: chunk[0]}
			err := rows.Scan(&r.key.Tenant, &r.key.EventID, &r.row.processed, &r.row.copies)
			found = append(found, r)
			return err
		})
		if err != nil {
			return err
		}
		if len(found) != len(chunk) {
			return fmt.Errorf("%w: %w", core.ErrTxAborted, sqlstore.ErrVanished)
		}
		for _, r := range found {
			if err := show(r.key, r.row); err != nil {
				return err
			}
		}
	}
	return nil
}
