package walrelay

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/ormoutbox/ormoutbox/core"
)

// Status is how far the reader of a slot is.
type Status struct {
	// Leading: this process reads the slot.
	Leading bool
	// Exists: the server has the slot. Active: a process reads it.
	Exists, Active bool
	// Confirmed is the position up to which the server need not send anything again.
	Confirmed pglogrepl.LSN
	// Behind is how many bytes of log follow, of all tables of the server.
	Behind int64
	// Kept is how many bytes of log the server keeps on its disk because of the slot: bytes not
	// confirmed yet, and bytes since the oldest transaction that was open.
	Kept int64
	// WALStatus is wal_status of pg_replication_slots: reserved, extended, unreserved or lost.
	WALStatus string
	// SafeWALSize is how many bytes may be written until the slot is in danger of being lost. It
	// has a meaning if Bounded is set: max_slot_wal_keep_size is.
	SafeWALSize int64
	Bounded     bool
	// Lost: the server has removed log that was not read. Run repairs the slot, see RepairPolicy.
	Lost bool
	// Repairing: Run publishes from the table the events of a lost slot.
	Repairing bool
	// Failover: the slot follows to standbys.
	Failover bool
	// SpilledKeys is how many keys are published from the table, because an event of theirs was
	// refused. Other processes cannot count them.
	SpilledKeys int
	// Checkpoint is the time from which on a repair publishes.
	Checkpoint time.Time
}

// Status asks the server. Any process may ask, whether it reads the slot or not. It returns an
// error wrapping ErrNotSetUp if there is no table of slots.
func (r *Relay) Status(ctx context.Context) (Status, error) {
	var st Status
	b, err := r.db.bookmark(ctx, r.cfg.Slot)
	if sqlState(err) == stateNoTable {
		return st, fmt.Errorf("%w: table %s is missing: call Setup, or set Create", ErrNotSetUp, r.db.table("log"))
	}
	if err != nil {
		return st, fmt.Errorf("walrelay: status: %w", err)
	}
	if b != nil {
		st.Repairing, st.Checkpoint = b.repairing, b.checkpointAt
	}
	s, err := r.db.slot(ctx, r.cfg.Slot)
	if err != nil {
		return st, fmt.Errorf("walrelay: status: %w", err)
	}
	if s != nil {
		st.Exists, st.Active, st.Confirmed, st.Behind, st.WALStatus = true, s.active, s.confirmed, s.behind, s.wal
		st.Kept, st.SafeWALSize, st.Bounded, st.Lost, st.Failover = s.keeps, s.safe, s.hasSafe, s.lost, s.failover
	}
	if own := r.session.Load(); own != nil {
		st.Leading = true
		_, st.SpilledKeys = own.window.spilledKeys(0)
	}
	return st, nil
}

// LogBacklog is Status for WatchLog of promoutbox and oteloutbox. A slot that the server does not
// have is lost. It returns the errors of Status.
func (r *Relay) LogBacklog(ctx context.Context) (core.LogBacklog, error) {
	st, err := r.Status(ctx)
	if err != nil {
		return core.LogBacklog{}, err
	}
	return core.LogBacklog{
		Slot: r.cfg.Slot, Known: st.Exists, Behind: st.Behind, Kept: st.Kept, Safe: st.SafeWALSize,
		Bounded: st.Bounded, Active: st.Active, Lost: st.Lost || !st.Exists, Repairing: st.Repairing,
		Leading: st.Leading, SpilledKeys: st.SpilledKeys,
	}, nil
}
