package cli

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// pastCheckpoint finds a slot of walrelay whose checkpoint is after the transaction of an event.
// The events of every transaction before a checkpoint are published, or open in the table. It reads
// xmin as pgxoutbox/walrelay does for a repair: a transaction in doubt counts as later.
const pastCheckpoint = `SELECT l.slot FROM {log} l, {event} e,
 (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next) now
WHERE e.id = $1::uuid AND NOT l.repairing AND
 now.next - (((now.next & 4294967295) - e.xmin::text::bigint) & 4294967295) < l.checkpoint::text::numeric::bigint
LIMIT 1`

// explainLog adds what PostgreSQL knows about events that a program reads from its log.
func (db *database) explainLog(ctx context.Context, schema, prefix string, all []ops.Explanation) error {
	var slots []slot
	for i := range all {
		x := &all[i]
		if !x.Event.ByLog() || db.pgx == nil {
			continue
		}
		if slots == nil {
			var err error
			if slots, err = db.readers(ctx, schema, prefix, true); err != nil {
				return err
			}
		}
		by, err := db.publishedBy(ctx, schema, prefix, slots, x.Event)
		if err != nil {
			return err
		}
		if by != "" {
			x.Text += " Table " + prefix + "log does: walrelay has published it, from slot " + by + "."
			x.Fix = ""
			continue
		}
		if len(slots) == 0 {
			x.Text += " Nobody reads the log of this database: it has no logical replication slot."
		}
		for _, s := range slots {
			f := s.judge(maxLogBehind)
			x.Text += " " + strings.ToUpper(f.Found[:1]) + f.Found[1:] + "."
			if f.Level == levelFailure {
				x.Fix = strings.ToUpper(f.Fix[:1]) + f.Fix[1:] + ". " + x.Fix
			}
		}
	}
	return nil
}

// publishedBy returns the slot from which walrelay has published an event, as far as it has written
// that down.
func (db *database) publishedBy(ctx context.Context, schema, prefix string, slots []slot, e ops.Event,
) (slot string, err error) {
	if len(slots) == 0 || slots[0].mark == nil {
		return "", nil
	}
	text := strings.NewReplacer("{log}", db.quote(schema, prefix+"log"), "{event}", db.quote(schema, prefix+"event")).
		Replace(pastCheckpoint)
	err = db.QueryRowContext(ctx, text, e.ID.String()).Scan(&slot)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return slot, err
}
