package sqlinbox

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

// database has the steps that take different statements, or more than one, on each database.
type database interface {
	// advance moves the newest event of a key, whose columns are key, up to seq, and reports
	// whether it was older.
	advance(ctx context.Context, tx core.Tx, key []any, seq int64) (newer bool, err error)

	// batchSize is how many events one statement inserts.
	batchSize() int
	// stillOpen fails if the caller's transaction has ended on the server alone.
	stillOpen(ctx context.Context, tx core.Tx) error
	// insertRows inserts the new events of a handler, and calls fresh with their keys. It reads the
	// existing rows by see.
	insertRows(ctx context.Context, tx core.Tx, h *handler, events []inbox.Event, fresh func(inbox.Key),
		see seeRows) error
	// seeRows returns the statement that locks the rows of keys. It names each key in full, so that
	// no planner reads all events of a handler.
	seeRows(h *handler, keys []inbox.Key) (text string, args []any)

	// handlerID returns what stands for a handler of a consumer in {seen}.
	handlerID(consumer, name string) any
}

// seeRows locks the rows of keys. Then it shows each row.
type seeRows func(keys []inbox.Key, show func(k inbox.Key, r seenBefore) error) error

// seenBefore is a row of {seen}.
type seenBefore struct {
	processed int   // 1: its event was processed
	copies    int64 // how often an INSERT found the row, where that is counted
}

// unlessSeen ends an INSERT into {seen} that leaves an existing row alone; see sqlstore.Insert.
func unlessSeen(n sqlstore.Names) string {
	return n.Unless("handler_id, tenant_id, event_id", "copies = copies + 1")
}

// upsertLane implements advance in one statement.
type upsertLane struct{ advanceLane string }

const advanceLane = laneHead + "ON CONFLICT (consumer, handler, tenant_id, topic, partition_key) DO UPDATE SET " +
	"last_seq = excluded.last_seq, updated_at = excluded.updated_at WHERE k.last_seq < excluded.last_seq"

func (d upsertLane) advance(ctx context.Context, tx core.Tx, key []any, seq int64) (newer bool, err error) {
	n, err := tx.Exec(ctx, d.advanceLane, append(key, seq)...)
	return n == 1, err
}

// stillOpen returns nil: on these databases a transaction does not end without its caller.
func (upsertLane) stillOpen(context.Context, core.Tx) error { return nil }

// seeByKeys returns the end of a seeRows statement that names n keys one by one.
func seeByKeys(n int) string {
	return strings.Repeat("("+seenIs+") OR ", n-1) + "(" + seenIs + "){lock}"
}

// keysArgs are the parameters of seeByKeys.
func keysArgs(h *handler, keys []inbox.Key) (args []any) {
	for _, k := range keys {
		args = append(args, h.key(k)...)
	}
	return args
}

// eventsArgs are the parameters of insertRows.
func eventsArgs(h *handler, events []inbox.Event) (args []any) {
	for _, e := range events {
		args = append(args, seenArgs(h, e)...)
	}
	return args
}

// showFresh runs a statement that inserts events of a handler and returns the tenant and id of
// each. It calls fresh with each key.
func showFresh(ctx context.Context, tx core.Tx, h *handler, fresh func(inbox.Key), text string, args []any) error {
	return sqlkit.EachRow(ctx, tx, text, args, func(rows core.Rows) error {
		k := inbox.Key{Consumer: h.consumer, Handler: h.name}
		err := rows.Scan(&k.Tenant, &k.EventID)
		fresh(k)
		return err
	})
}

// The rows of {seen} have a number in place of the names of their consumer and handler. The number
// is computed from the names, so no process has to learn it from the database: a number that was
// read in a transaction that rolled back, or before a restore or a failover, would let an event be
// processed twice. The table {handler} lists the names of each number, for people and for Cleanup.

// separator is between the two names. No name has a control character.
const separator = "\x1f"

// numbered has the number of a handler of PostgreSQL, MariaDB and MySQL: the first 60 bits of the
// SHA-256 of its names.
type numbered struct{}

func (numbered) handlerID(consumer, name string) any {
	sum := sha256.Sum256([]byte(consumer + separator + name))
	return int64(binary.BigEndian.Uint64(sum[:]) >> 4)
}

// named is for SQLite, which computes no hash: an id consists of the names themselves.
type named struct{}

func (named) handlerID(consumer, name string) any { return consumer + separator + name }

// handlers has the handlers that a process has met. It is safe for use by several goroutines.
type handlers struct {
	number func(consumer, name string) any

	mu  sync.RWMutex
	met map[handlerKey]*handler
}

type handlerKey struct{ consumer, name string }

// handler is a handler of a consumer.
type handler struct {
	handlerKey
	id any
}

func (h *handlers) of(consumer, name string) *handler {
	k := handlerKey{consumer, name}
	h.mu.RLock()
	one := h.met[k]
	h.mu.RUnlock()
	if one != nil {
		return one
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if one = h.met[k]; one == nil {
		one = &handler{handlerKey: k, id: h.number(consumer, name)}
		if h.met == nil {
			h.met = map[handlerKey]*handler{}
		}
		h.met[k] = one
	}
	return one
}

// key are the parameters that name a row of {seen}.
func (h *handler) key(k inbox.Key) []any { return []any{h.id, k.Tenant, k.EventID} }

// Register lists the handler in a short transaction of its own, and writes that the program serves
// it now. It returns the other programs that have done so within a week.
func (s *Store) Register(ctx context.Context, r inbox.Registration) (others []inbox.Registration, err error) {
	if err := (inbox.Key{Consumer: r.Consumer, Handler: r.Handler, EventID: "e"}).Validate(); err != nil {
		return nil, err
	}
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	h := s.handlers.of(r.Consumer, r.Handler)
	err = s.db.InTx(ctx, "register a handler", func(q sqlkit.Querier) (err error) {
		others = nil
		if _, err := q.Exec(ctx, s.sql.list, h.id, h.consumer, h.name); err != nil || r.Program == "" {
			return err
		}
		program := laneText(r.Program, 255)
		if _, err := q.Exec(ctx, s.sql.register, h.id, program, sqlstore.Column(r.Topic, maxTopic)); err != nil {
			return err
		}
		args := []any{h.id, program, sqlstore.ProgramMemory.Microseconds()}
		others, err = sqlkit.Rows(ctx, q, s.sql.others, args, func(rows core.Rows) (inbox.Registration, error) {
			other := inbox.Registration{Consumer: r.Consumer, Handler: r.Handler}
			err := rows.Scan(&other.Program, &other.Topic)
			return other, err
		})
		return err
	})
	return others, err
}

// Shared returns the registrations of the last week under names that more than one program serves.
// Most often two programs are a mistake: each event is processed by one of them.
func (s *Store) Shared(ctx context.Context) (shared []inbox.Registration, err error) {
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	week := sqlstore.ProgramMemory.Microseconds()
	return sqlstore.List(ctx, s.db, "find shared names", s.sql.shared, []any{week, week},
		func(rows core.Rows) (r inbox.Registration, err error) {
			err = rows.Scan(&r.Consumer, &r.Handler, &r.Program, &r.Topic)
			return r, err
		})
}
