package sqlinbox

import (
	"context"
	"strconv"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

var postgresVariant = variant{
	list: listOnce,
	cleanupKeys: "DELETE FROM {inbox_key} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {inbox_key} WHERE consumer = ? " +
		"AND updated_at < {ago} LIMIT ?::bigint FOR UPDATE SKIP LOCKED))",
	database: func(n sqlstore.Names) database {
		return &postgres{
			upsertLane: upsertLane{n.Statement(advanceLane)},
			insertAll: n.Statement(seenHead + "SELECT ?::bigint, v.tenant, v.event_id, v.source, 1, {now} " +
				"FROM unnest(?::text[], ?::text[], ?::text[]) AS v(tenant, event_id, source)" + unlessSeen(n) +
				" RETURNING tenant_id, event_id"),
			// The rows are read one by one, each by its whole key. For a list of keys PostgreSQL
			// looks up only the parts that all keys have in common, and so reads all events of the
			// handler.
			seeAll: n.Statement("SELECT e.tenant_id, e.event_id, e.processed, 0 FROM " +
				"unnest(?::text[], ?::text[]) AS v(tenant, event_id) CROSS JOIN LATERAL " +
				"(SELECT tenant_id, event_id, " + isProcessed + " AS processed FROM {seen} WHERE " +
				"handler_id = ? AND tenant_id = v.tenant AND event_id = v.event_id LIMIT 1 FOR UPDATE) e"),
		}
	},
}

// postgres sends lists as arrays.
type postgres struct {
	numbered
	upsertLane
	insertAll, seeAll string
}

func (*postgres) batchSize() int { return batchSize }

func (d *postgres) insertRows(ctx context.Context, tx core.Tx, h *handler, events []inbox.Event,
	fresh func(inbox.Key), _ seeRows,
) error {
	columns := arraysOf(len(events), seenColumns-1, func(n int) []any { return seenArgs(h, events[n])[1:] })
	return showFresh(ctx, tx, h, fresh, d.insertAll, append([]any{h.id}, columns...))
}

func (d *postgres) seeRows(h *handler, keys []inbox.Key) (text string, args []any) {
	columns := arraysOf(len(keys), 2, func(n int) []any { return []any{keys[n].Tenant, keys[n].EventID} })
	return d.seeAll, append(columns, h.id)
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
