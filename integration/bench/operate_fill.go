package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// fillOperate writes the rows, in the layout that runOperate describes.
func (d wakeDatabase) fillOperate(ctx context.Context, pool *sql.DB, prefix string, rows int) error {
	w := operateWriters[d.dial]
	group, turn := "n / 100", "n % 100"
	if d.dial == core.MySQL {
		group = "n DIV 100"
	}
	byKey := func(value string) string { return "CASE WHEN " + turn + " >= 90 THEN " + value + " END" }
	var lanes strings.Builder
	fmt.Fprintf(&lanes, "CASE (%s) %% %d", group, operateKeys)
	for i := range operateKeys {
		lane := core.NewKeyID("", operateTopic(i%operateTopics), operateKey(i))
		fmt.Fprintf(&lanes, " WHEN %d THEN "+w.bytes, i, lane[:])
	}
	lanes.WriteString(" END")
	failed := func(value string) string { return "CASE WHEN " + turn + " = 99 THEN " + value + " END" }
	columns := []struct{ name, value string }{
		{"id", w.id},
		{"event_id", w.eventID},
		{"event_type", "'" + benchType + "'"},
		{"topic", w.concat("'orders-'", fmt.Sprintf("(%s) %% %d", group, operateTopics))},
		{"partition_key", byKey(w.concat("'order-'", fmt.Sprintf("(%s) %% %d", group, operateKeys)))},
		{"lane", byKey(lanes.String())},
		{"key_seq", byKey("n")},
		{"payload", "'" + string(newPayload(0)) + "'"},
		{"content_type", "'application/json'"},
		{"status", "CASE WHEN " + turn + " < 91 THEN 1 WHEN " + turn + " < 99 THEN 0 ELSE 3 END"},
		{"attempts", "CASE WHEN " + turn + " = 99 THEN 5 ELSE 0 END"},
		{"claim_no", "1"},
		{"available_at", w.tomorrow},
		{"occurred_at", w.at},
		{"created_at", w.at},
		{"done_at", "CASE WHEN " + turn + " < 91 THEN " + w.at + " END"},
		{"last_error_code", failed("'permanent'")},
		{"last_error", failed(w.concat("'field amount is missing in version '", "n"))},
	}
	var names, values []string
	for _, c := range columns {
		names, values = append(names, c.name), append(values, c.value)
	}
	//nolint:gosec // every part is a constant of this program
	fill := fmt.Sprintf("INSERT INTO %sevent (%s) SELECT %s FROM %s", prefix, strings.Join(names, ", "),
		strings.Join(values, ", "), fmt.Sprintf(w.series, rows))
	//nolint:gosec // every part is a constant of this program
	audit := fmt.Sprintf("INSERT INTO %saudit (at, action, actor, reason, row_id, event_id, topic) "+
		"SELECT %s, 'redrive', "+
		"'ada', 'schema registered', %s, %s, 'orders-0' FROM %s", prefix, w.at, w.id, w.eventID,
		fmt.Sprintf(w.series, max(rows/operateAudited, ops.DefaultLimit)))
	for _, statement := range []string{fill, audit, fmt.Sprintf(w.analyze, prefix+"event")} {
		if _, err := pool.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%w: %.200s", err, statement)
		}
	}
	return nil
}

// operateWriter has what the databases spell differently. n is the number of the row. Ids begin
// with their time, a millisecond for each row.
type operateWriter struct {
	series, id, eventID, at, tomorrow, bytes, analyze, dead string
	concat                                                  func(a, b string) string
}

var operateWriters = map[core.Dialect]operateWriter{
	core.Postgres: {
		series:   "generate_series(1, %d) n",
		id:       "(lpad(to_hex(1750000000000 + n), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid",
		eventID:  "((lpad(to_hex(1750000000000 + n), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid)::text",
		at:       "now() - interval '1 hour' + n * interval '1 ms'",
		tomorrow: "now() + interval '1 day'",
		bytes:    `'\x%x'::bytea`,
		analyze:  "VACUUM (ANALYZE) %s",
		dead:     "status = 3",
		concat:   func(a, b string) string { return a + " || (" + b + ")::text" },
	},
	core.MySQL: {
		series: "(SELECT seq AS n FROM seq_1_to_%d) s",
		id:     "UNHEX(CONCAT(LPAD(HEX(1750000000000 + n), 12, '0'), '70008000', LPAD(HEX(n), 12, '0')))",
		eventID: "LOWER(CONCAT(LEFT(LPAD(HEX(1750000000000 + n), 12, '0'), 8), '-', " +
			"RIGHT(HEX(1750000000000 + n), 4), '-7000-8000-', LPAD(HEX(n), 12, '0')))",
		at:       "UTC_TIMESTAMP(6) - INTERVAL 1 HOUR + INTERVAL n * 1000 MICROSECOND",
		tomorrow: "UTC_TIMESTAMP(6) + INTERVAL 1 DAY",
		bytes:    "x'%x'",
		analyze:  "ANALYZE TABLE %s",
		dead:     "dead = 1",
		concat:   func(a, b string) string { return "CONCAT(" + a + ", " + b + ")" },
	},
	core.SQLite: {
		series: "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < %d) SELECT n FROM s) s",
		id:     "unhex(printf('%012x70008000%012x', 1750000000000 + n, n))",
		eventID: "printf('%s-%s-7000-8000-%012x', substr(printf('%012x', 1750000000000 + n), 1, 8), " +
			"substr(printf('%012x', 1750000000000 + n), 9), n)",
		at:       "(unixepoch() - 3600) * 1000000 + n * 1000",
		tomorrow: "(unixepoch() + 86400) * 1000000",
		bytes:    "x'%x'",
		analyze:  "ANALYZE %s",
		dead:     "status = 3",
		concat:   func(a, b string) string { return a + " || (" + b + ")" },
	},
}
