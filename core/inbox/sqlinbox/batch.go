package sqlinbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

// inboxChunk is how many events one statement inserts: far below what any database takes as
// parameters. SQLite is no journey away, and its drivers take more than their share for many
// parameters.
const (
	inboxChunk       = 500
	inboxChunkSQLite = 40
)

// BeginBatch does for many events of one consumer and handler what Begin does for one, with one
// statement for up to 500 of them (40 on SQLite). It goes by their keys in ascending order, so that
// two batches wait for each other and do not deadlock. A second copy of an event in the batch is
// inbox.StateProcessed.
func (s *Store) BeginBatch(ctx context.Context, tx core.Tx, events []inbox.Event) ([]inbox.State, error) {
	const what = "inbox batch"
	states := make([]inbox.State, len(events))
	order := make([]int, 0, len(events))
	for n, e := range events {
		if err := e.Validate(); err != nil {
			return nil, fmt.Errorf("event %d: %w", n, err)
		}
		if e.Consumer != events[0].Consumer || e.Handler != events[0].Handler {
			return nil, errors.New("sqlonce: inbox batch: its events are for more than one consumer or handler")
		}
		order = append(order, n)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(events[a].Tenant, events[b].Tenant),
			cmp.Compare(events[a].EventID, events[b].EventID))
	})
	first := make(map[inbox.Key]bool, len(order))
	order = slices.DeleteFunc(order, func(n int) bool {
		again := first[events[n].Key]
		if first[events[n].Key] = true; again {
			states[n] = inbox.StateProcessed
		}
		return again
	})
	if err := s.db.Join(tx); err != nil {
		return nil, s.db.Wrap(what, err)
	}
	if s.db.Dialect() == core.MySQL {
		if err := sqlkit.StillOpen(ctx, tx); err != nil {
			return nil, s.db.Wrap(what, sqlstore.TxError(err))
		}
	}
	size := inboxChunk
	if s.db.Dialect() == core.SQLite {
		size = inboxChunkSQLite
	}
	for chunk := range slices.Chunk(order, size) {
		if err := s.beginChunk(ctx, tx, events, chunk, states); err != nil {
			return nil, s.db.Wrap(what, sqlstore.TxError(err))
		}
	}
	return states, nil
}

// beginChunk fills in the states of a chunk, whose events are different.
func (s *Store) beginChunk(ctx context.Context, tx core.Tx, events []inbox.Event, chunk []int,
	states []inbox.State,
) error {
	at := make(map[inbox.Key]int, len(chunk))
	for _, n := range chunk {
		at[events[n].Key] = n
	}
	var err error
	if s.db.Dialect() == core.MySQL {
		err = s.insertRowsMySQL(ctx, tx, events, chunk, states)
	} else {
		err = s.insertRows(ctx, tx, events, chunk, func(k inbox.Key) { states[at[k]] = inbox.StateFresh })
	}
	if err != nil {
		return err
	}
	var rest []inbox.Key
	for _, n := range chunk {
		if states[n] == 0 {
			rest = append(rest, events[n].Key)
		}
	}
	return s.seeRows(ctx, tx, rest, func(k inbox.Key, r inboxRow, _ int64) error {
		state, _, err := s.decide(ctx, tx, k, r)
		states[at[k]] = state
		return err
	})
}

// insertRows inserts what is new and reports it.
func (s *Store) insertRows(ctx context.Context, tx core.Tx, events []inbox.Event, chunk []int,
	fresh func(inbox.Key),
) error {
	first := events[chunk[0]].Key
	text, args := s.sql["insert_rows"], []any{first.Consumer, first.Handler}
	if s.db.Dialect() == core.Postgres {
		args = append(args, arrays(events, chunk)...)
	} else {
		text = s.db.Statement(inboxInsertRows(len(chunk)) + " ON CONFLICT (consumer, handler, tenant_id, " +
			"event_id) DO NOTHING RETURNING tenant_id, event_id")
		args = nil
		for _, n := range chunk {
			args = append(args, eventArgs(events[n])...)
		}
	}
	return sqlkit.EachRow(ctx, tx, text, args, func(rows core.Rows) error {
		k := first
		err := rows.Scan(&k.Tenant, &k.EventID)
		fresh(k)
		return err
	})
}

// insertRowsMySQL inserts what is new and counts up seen of what was there: what has a 0 there
// afterwards was inserted by us.
func (s *Store) insertRowsMySQL(ctx context.Context, tx core.Tx, events []inbox.Event, chunk []int,
	states []inbox.State,
) error {
	var args []any
	keys := make([]inbox.Key, len(chunk))
	at := make(map[inbox.Key]int, len(chunk))
	for p, n := range chunk {
		args = append(args, eventArgs(events[n])...)
		keys[p], at[events[n].Key] = events[n].Key, n
	}
	affected, err := tx.Exec(ctx, s.db.Statement(inboxInsertRows(len(chunk))+
		" ON DUPLICATE KEY UPDATE seen = seen + 1"), args...)
	if err != nil {
		return err
	}
	if affected == int64(len(chunk)) { // 1 for each insert, 2 for each that was there
		for _, n := range chunk {
			states[n] = inbox.StateFresh
		}
		return nil
	}
	return s.seeRows(ctx, tx, keys, func(k inbox.Key, _ inboxRow, seen int64) error {
		if seen == 0 {
			states[at[k]] = inbox.StateFresh
		}
		return nil
	})
}

// seeRows locks the rows of the keys and then shows each. A key whose row is gone makes it fail:
// the transaction is to be run again.
func (s *Store) seeRows(ctx context.Context, tx core.Tx, keys []inbox.Key,
	show func(inbox.Key, inboxRow, int64) error,
) error {
	type seenRow struct {
		key  inbox.Key
		row  inboxRow
		seen int64
	}
	for chunk := range slices.Chunk(keys, sqlstore.DeleteChunk) {
		text, args := s.seeRowsText(chunk)
		found := make([]seenRow, 0, len(chunk))
		err := sqlkit.EachRow(ctx, tx, text, args, func(rows core.Rows) error {
			r := seenRow{key: chunk[0]}
			err := rows.Scan(&r.key.Tenant, &r.key.EventID, &r.row.status, &r.row.attempts, &r.row.left, &r.seen)
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
			if err := show(r.key, r.row, r.seen); err != nil {
				return err
			}
		}
	}
	return nil
}

// seeRowsText returns the statement that locks the rows of keys, each of which it names in full, so
// that no planner walks through all events of a handler.
func (s *Store) seeRowsText(keys []inbox.Key) (text string, args []any) {
	if s.db.Dialect() == core.Postgres {
		columns := arraysOf(len(keys), 2, func(n int) []any { return []any{keys[n].Tenant, keys[n].EventID} })
		return s.db.Statement(s.sql["see_rows"]), append(columns, keys[0].Consumer, keys[0].Handler)
	}
	for _, k := range keys {
		args = append(args, keyArgs(k)...)
	}
	text = s.sql["see_rows"] + strings.Repeat("("+inboxIs+") OR ", len(keys)-1) + "(" + inboxIs + "){lock}"
	return s.db.Statement(text), args
}

// arrays returns the columns of the events, without consumer and handler, which are the same for
// all.
func arrays(events []inbox.Event, chunk []int) []any {
	const keys = 2
	return arraysOf(len(chunk), inboxColumns-keys, func(n int) []any { return eventArgs(events[chunk[n]])[keys:] })
}

// arraysOf turns rows into columns, each a literal of text[], which every driver can send.
func arraysOf(rows, columns int, row func(n int) []any) []any {
	texts := make([]strings.Builder, columns)
	for n := range rows {
		for c, v := range row(n) {
			b := &texts[c]
			if n == 0 {
				b.WriteByte('{')
			} else {
				b.WriteByte(',')
			}
			switch v := v.(type) {
			case nil:
				b.WriteString("NULL")
			case string:
				b.WriteByte('"')
				b.WriteString(arrayEscaper.Replace(v))
				b.WriteByte('"')
			case int:
				b.WriteString(strconv.Itoa(v))
			case int32:
				b.WriteString(strconv.Itoa(int(v)))
			case int64:
				b.WriteString(strconv.FormatInt(v, 10))
			}
		}
	}
	args := make([]any, columns)
	for c := range texts {
		texts[c].WriteByte('}')
		args[c] = texts[c].String()
	}
	return args
}

var arrayEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
