package sqlinbox

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

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

// named has that of SQLite, which computes no hash: the names themselves.
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
	h := s.handlers.of(r.Consumer, r.Handler)
	err = s.db.InTx(ctx, "register a handler", func(q sqlkit.Querier) error {
		others = nil
		if _, err := q.Exec(ctx, s.sql.list, h.id, h.consumer, h.name); err != nil || r.Program == "" {
			return err
		}
		program := laneText(r.Program, 255)
		if _, err := q.Exec(ctx, s.sql.register, h.id, program, sqlstore.Column(r.Topic, MaxTopic)); err != nil {
			return err
		}
		args := []any{h.id, program, sqlstore.ProgramMemory.Microseconds()}
		return sqlkit.EachRow(ctx, q, s.sql.others, args, func(rows core.Rows) error {
			other := inbox.Registration{Consumer: r.Consumer, Handler: r.Handler}
			err := rows.Scan(&other.Program, &other.Topic)
			others = append(others, other)
			return err
		})
	})
	return others, err
}

// Shared returns the registrations of the last week under names that more than one program serves.
// Most often that is a mistake: each event is processed by one of the programs.
func (s *Store) Shared(ctx context.Context) (shared []inbox.Registration, err error) {
	err = s.db.InTx(ctx, "find shared names", func(q sqlkit.Querier) error {
		shared = nil
		week := sqlstore.ProgramMemory.Microseconds()
		return sqlkit.EachRow(ctx, q, s.sql.shared, []any{week, week}, func(rows core.Rows) error {
			var r inbox.Registration
			err := rows.Scan(&r.Consumer, &r.Handler, &r.Program, &r.Topic)
			shared = append(shared, r)
			return err
		})
	})
	return shared, err
}
