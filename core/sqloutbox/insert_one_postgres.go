package sqloutbox

import (
	"strconv"
	"strings"
)

// The INSERT of a single event, which most transactions have, has no joins, and names only the
// columns that the event has: each parameter costs the client and the server.

// postgresOptionals are the types of the parameters for optionalColumns.
var postgresOptionals = [len(optionalColumns)]string{
	"integer", "text", "text", "bigint", "text", "text", "text", "jsonb",
}

// postgresInsertOne returns the INSERT for one row. The parameters are those of shapeOf.
func postgresInsertOne(s shape) string {
	columns := []string{"id", "event_id", "event_type", "topic", "payload", "occurred_at", "created_at"}
	values := []string{
		"$1::uuid", "$2::text", "$3::text", "$4::text", "$5::bytea", "$6::timestamptz", "clock_timestamp()",
	}
	add := func(column, value string) { columns, values = append(columns, column), append(values, value) }
	n := 6
	param := func(cast string) string {
		n++
		return "$" + strconv.Itoa(n) + "::" + cast
	}
	if s.has(shapeHot) {
		add("claim_no", param("bigint"))
		add("claimed_by", param("text"))
		add("lease_until", "clock_timestamp() + "+param("bigint")+" * interval '1 microsecond'")
	}
	if s.has(shapeByLog) {
		add("status", "1")
		add("claimed_by", byLog)
		add("done_at", "clock_timestamp()")
	}
	available := "clock_timestamp()"
	if s.has(shapeDelayed) {
		available += " + " + param("bigint") + " * interval '1 microsecond'"
	}
	add("available_at", available)
	lane := ""
	if s.has(shapeOrdered) {
		lane = param("bytea")
		add("lane", "k.lane")
		add("key_seq", "k.last_seq")
	}
	for i, column := range optionalColumns {
		if s.has(shapeOptional << i) {
			add(column, param(postgresOptionals[i]))
		}
	}
	insert := "INSERT INTO {event} (" + strings.Join(columns, ", ") + ") "
	if lane == "" {
		return insert + "VALUES (" + strings.Join(values, ", ") + ")"
	}
	const clock = "(extract(epoch from statement_timestamp())*1000000)::bigint"
	return `WITH k AS (INSERT INTO {key} AS k (lane, last_seq, first_seq, last_id, used_at)
VALUES (` + lane + ", " + clock + ", " + clock + `, $1::uuid, clock_timestamp())
ON CONFLICT (lane) DO UPDATE SET last_seq = k.last_seq + 1, prev_id = k.last_id, last_id = excluded.last_id,
  used_at = excluded.used_at
RETURNING lane, last_seq, first_seq, prev_id), e AS (` + insert + "SELECT " + strings.Join(values, ", ") +
		" FROM k) SELECT lane, last_seq, first_seq, prev_id FROM k"
}
