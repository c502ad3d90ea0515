package outboxsql

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// CopiedColumns are the columns of a row that gets a copy.
const CopiedColumns = `event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, ` +
	`tenant_id, partition_key, lane, payload, content_type, headers, occurred_at, replay_of`

// Source is a row that gets a copy: a dead row that is appended to its key again, or a done row
// that is replayed. Lane is the copy's, or zero.
type Source struct {
	ID, NewID core.RowID
	Lane      core.KeyID
	KeySeq    int64
	EventID   string
	Topic     string
}

// SortByKey puts sources in the order in which writers of keys take the key rows.
func SortByKey(rows []Source) {
	slices.SortFunc(rows, func(a, b Source) int {
		return cmp.Or(bytes.Compare(a.Lane[:], b.Lane[:]), cmp.Compare(a.KeySeq, b.KeySeq),
			bytes.Compare(a.ID[:], b.ID[:]))
	})
}

// ReadSources reads the rows of a statement about sources. A row that left its key has no lane any
// more: it is computed from tenant, topic and key.
func ReadSources(ctx context.Context, q sqlkit.Querier, text string, args []any) ([]Source, error) {
	return sqlkit.Rows(ctx, q, text, args, func(res core.Rows) (d Source, err error) {
		var tenant, key string
		var replay bool
		err = res.Scan((*ID)(&d.ID), &d.EventID, &d.Topic, &tenant, &key, &d.KeySeq, &replay)
		if d.KeySeq != 0 {
			d.Lane = core.NewKeyID(tenant, d.Topic, key)
		}
		if replay && d.KeySeq != 0 {
			d.Lane = core.ReplayKeyID(d.Lane)
		}
		return d, err
	})
}

// SortedIDs returns the ids in ascending order, each once.
func SortedIDs(ids []core.RowID) []core.RowID {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b core.RowID) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(ids)
}

// CheckWho refuses a request of a person without Actor or Reason.
func CheckWho(req core.AdminRequest) error {
	if req.Actor == "" || req.Reason == "" {
		return &core.FieldError{Err: core.ErrInvalidRequest, Format: "{Actor} and {Reason} are required"}
	}
	return nil
}
