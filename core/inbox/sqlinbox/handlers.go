package sqlinbox

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
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
	// listed says that the table of handlers has a row for this one that is committed.
	listed atomic.Bool
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

// list lists the handler of a row that was inserted in tx, unless it is listed.
func (s *Store) list(ctx context.Context, tx core.Tx, h *handler) error {
	if h.listed.Load() {
		return nil
	}
	n, err := s.listIn(ctx, tx, h)
	if err != nil {
		return err
	}
	if n == 0 && !tx.Tracked() { // nobody will tell whether it commits; another transaction has listed the handler
		h.listed.Store(true)
	}
	tx.OnOutcome(func(o core.Outcome) {
		if o == core.Committed {
			h.listed.Store(true)
		}
	})
	return nil
}

// listIn lists a handler. It returns 0 if the handler was listed before.
func (s *Store) listIn(ctx context.Context, q sqlkit.Querier, h *handler) (int64, error) {
	return q.Exec(ctx, s.sql.list, h.id, h.consumer, h.name)
}
