package walrelay

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/ormoutbox/ormoutbox/core"
)

// keeper writes down how far the session is.
type keeper struct {
	*session
	wrote     time.Time     // the last bookmark
	asked     time.Time     // the last look for a checkpoint
	candidate uint64        // a checkpoint, once everything before at is answered
	at        pglogrepl.LSN // zero: there is none
	taken     time.Time
	wasRepair bool
	failures  int
	failing   time.Time // the first failure, or when the session was to leave because of them
}

// leaveAfter is how long the position may fail to be written down until the session closes its
// connection to the log. A server that shuts down waits for that connection, and for this long takes
// no other one. If another reason prevents the writing, the session connects again and goes on.
const leaveAfter = 10 * time.Second

func (k *keeper) run(ctx context.Context) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	k.wrote = time.Now()
	k.wasRepair = k.window.isRepairing()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			if err := k.turn(ctx, now); err != nil {
				return err
			}
		}
	}
}

func (k *keeper) turn(ctx context.Context, now time.Time) error {
	if n := k.window.stalled(now, k.cfg.StallLimit); n > 0 {
		k.log.WarnContext(ctx, "outbox: events of destinations that are stopped, paused or limited wait "+
			"in the table", "events", n)
	}
	done, answered := k.window.progress()
	repaired := k.wasRepair && !k.window.isRepairing()
	moved := uint64(done) > k.confirmed.Load()
	since := now.Sub(k.wrote)
	var err error
	switch {
	case repaired, moved && answered >= k.cfg.ConfirmEvents, moved && answered > 0 && since >= k.cfg.ConfirmEvery,
		moved && since >= k.cfg.CheckpointEvery:
		err = k.write(ctx, done, answered, repaired)
	}
	if err == nil && now.Sub(k.asked) >= k.cfg.CheckpointEvery {
		k.asked = now
		err = k.look(ctx)
	}
	if err == nil || ctx.Err() != nil {
		k.failures = 0
		return nil //nolint:nilerr // the session ends
	}
	if errors.Is(err, errNotLeading) || errors.Is(err, errRepair) || isFinal(err) {
		return err
	}
	if k.failures == 0 {
		k.failing = now
	}
	if state := sqlState(err); state == stateShutdown || state == stateNotNow || now.Sub(k.failing) > leaveAfter {
		k.failing = now
		k.leave.Store(true)
	}
	if k.failures++; k.failures%50 == 1 {
		k.log.WarnContext(ctx, "outbox: the position in the log cannot be written down, so the server "+
			"keeps the log", "failures", k.failures, "error", err)
	}
	return nil
}

// write writes the bookmark, and then confirms to the server. The order matters: the confirmed
// position is never beyond the bookmark, so a slot that is further than the bookmark was moved by
// somebody else. The write also is a transaction of this database, and so makes the server go on
// while only other databases are busy.
func (k *keeper) write(ctx context.Context, done pglogrepl.LSN, answered int, repaired bool) error {
	var checkpoint any
	var age time.Duration
	if k.at != 0 && done >= k.at && !k.window.isRepairing() {
		checkpoint, age = strconv.FormatUint(k.candidate, 10), time.Since(k.taken)
	}
	n, err := k.db.exec(ctx, `UPDATE {log} SET confirmed = greatest(confirmed, $3::text::pg_lsn),
  repairing = repairing AND NOT $6::boolean, checkpoint = COALESCE($4::text::xid8, checkpoint),
  checkpoint_at = CASE WHEN $4::text IS NULL THEN checkpoint_at
    ELSE clock_timestamp() - $5::bigint * interval '1 microsecond' END
WHERE `+leads(k.timeline)+" AND confirmed >= $7::text::pg_lsn", k.cfg.Slot, k.epoch, done.String(), checkpoint,
		age.Microseconds(), repaired, pglogrepl.LSN(k.confirmed.Load()).String())
	if err != nil {
		return err
	}
	if n == 0 {
		return errNotLeading
	}
	if checkpoint != nil {
		k.at = 0
	}
	if repaired {
		k.wasRepair = false
		k.log.InfoContext(ctx, "outbox: the events of the table are published, and all others come from the slot")
	}
	k.confirmed.Store(uint64(done))
	k.window.confirmed(answered)
	k.wrote = time.Now()
	return nil
}

// look takes a candidate for a checkpoint, and forgets keys that have no open rows any more.
//
// Every transaction before the oldest running one has ended, and its end is in the log before the
// position that is read after that. A candidate stays until that position is answered, however far
// behind the relay is.
func (k *keeper) look(ctx context.Context) error {
	var oldest int64
	var at pglogrepl.LSN
	if k.at == 0 {
		if _, err := k.db.row(ctx, "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, "+
			"pg_current_wal_insert_lsn()::text", nil, &oldest, (*lsnText)(&at)); err != nil {
			return err
		}
	}
	k.register(ctx)
	if err := k.lookForStandbys(ctx); err != nil {
		return err
	}
	// After the candidate: a publication that is right now had all events before it.
	if err := k.published(ctx); err != nil {
		return err
	}
	if at != 0 {
		k.candidate, k.at, k.taken = uint64(oldest), at, time.Now()
	}
	keys, _ := k.window.spilledKeys(1000)
	if len(keys) == 0 {
		return nil
	}
	open, err := k.db.stillOpen(ctx, hexKeys(keys), k.repo.skipDead)
	if err != nil {
		return err
	}
	still := map[core.KeyID]bool{}
	for _, id := range open {
		still[id] = true
	}
	var over []core.KeyID
	for _, id := range keys {
		if !still[id] {
			over = append(over, id)
		}
	}
	k.window.unspill(over)
	return nil
}

// published looks whether the publication still has the events. A person may have changed it: then
// the server passes over events. They committed after the last checkpoint, and so are published
// from the table when the publication is right again.
func (k *keeper) published(ctx context.Context) error {
	_, _, err := k.publication(ctx)
	if errors.Is(err, errNoPublication) || errors.Is(err, ErrSlotTaken) {
		unsent := k.unsent(ctx, err)
		if errors.Is(unsent, errRepair) && errors.Is(err, ErrSlotTaken) {
			return err
		}
		return unsent
	}
	return err
}

// last writes the bookmark when the session ends.
func (k *keeper) last() {
	done, answered := k.window.progress()
	if uint64(done) <= k.confirmed.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := k.write(ctx, done, answered, false); err != nil {
		k.log.Warn("outbox: the last position in the log cannot be written down: the events since then "+
			"are published again", "error", err)
	}
}

// The log has a commit before the transaction has ended for others: with synchronous replication
// COMMIT waits for a standby meanwhile, and a failover can undo it. So where the server has
// synchronous standbys, a transaction is published when an ordinary snapshot has it.

// heldTick is the pause after the first look at a transaction that has not ended. It grows up to tick.
const heldTick = 5 * time.Millisecond

// lookForStandbys finds out whether COMMIT may wait for standbys.
func (s *session) lookForStandbys(ctx context.Context) error {
	var names string
	_, err := s.db.row(ctx, "SELECT current_setting('synchronous_standby_names')", nil, &names)
	if err == nil {
		s.syncing.Store(names != "")
	}
	return err
}

// snapshot has the transactions that had ended when it was taken. In the zero value none had.
type snapshot struct {
	xmin, xmax uint64
	running    []int64
}

// has reports whether the transaction with the lower half of an id had ended. Transaction ids of the
// log are never further from the present than 2^31.
func (v *snapshot) has(xid uint32) bool {
	if v.xmax == 0 || int32(uint32(v.xmax)-xid) <= 0 { //nolint:gosec // ids wrap around
		return false
	}
	full := v.xmax - uint64(uint32(v.xmax)-xid)                      //nolint:gosec // the lower half
	return full < v.xmin || !slices.Contains(v.running, int64(full)) //nolint:gosec // far below 2^63
}

// hasEnded reports whether a transaction has ended for others. It asks the server only if the
// snapshot that it has does not know.
func (s *session) hasEnded(ctx context.Context, xid uint32) (bool, error) {
	if s.ended.has(xid) {
		return true, nil
	}
	var now snapshot
	_, err := s.db.row(ctx, `SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint,
  ARRAY(SELECT x::text::bigint FROM pg_snapshot_xip(s) x) FROM pg_current_snapshot() s`, nil, &now.xmin, &now.xmax,
		&now.running)
	if err != nil {
		return false, err
	}
	s.ended = now
	return now.has(xid), nil
}
