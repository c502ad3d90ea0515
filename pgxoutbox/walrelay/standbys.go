package walrelay

import (
	"context"
	"slices"
	"time"
)

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

// snapshot says which transactions had ended when it was taken. In the zero value none had.
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
