package sqloutbox

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// postgresInserts is the part of postgres that inserts.
type postgresInserts struct {
	names     names
	insertOne *shaped
	texts     *[2][cachedRows + 1]*sized // with rows of a reader of the log; by the number of lanes
}

func newPostgresInserts(n names) postgresInserts {
	p := postgresInserts{names: n, insertOne: newShaped(n, postgresInsertOne), texts: new([2][cachedRows + 1]*sized)}
	for lanes := range p.texts[0] {
		p.texts[0][lanes] = newSized(n, func(rows int) string { return postgresInsert(rows, lanes, false) })
		p.texts[1][lanes] = newSized(n, func(rows int) string { return postgresInsert(rows, lanes, true) })
	}
	return p
}

// insertText returns the INSERT for the given numbers of rows and lanes. byLog: a reader of the log
// publishes some of the rows.
func (p postgresInserts) insertText(rows, lanes int, byLog bool) string {
	if lanes > cachedRows {
		return p.names.expand(postgresInsert(rows, lanes, byLog))
	}
	return p.texts[b2i(byLog)][lanes].text(rows)
}

// insert writes the key rows and the events of a chunk in one statement.
func (p postgresInserts) insert(ctx context.Context, tx core.Tx, b *batch) error {
	return b.chunks(func(rows []int) error {
		text, args, lanes := p.statement(b, rows)
		if len(lanes) == 0 {
			_, err := tx.Exec(ctx, text, args...)
			return err
		}
		return sqlkit.EachRow(ctx, tx, text, args, func(res core.Rows) error { return b.scanLane(res, lanes) })
	})
}

// statement implements joiner.
func (p postgresInserts) statement(b *batch, rows []int) (text string, args []any, lanes []laneUse) {
	lanes = b.lanesOf(rows)
	if len(rows) > 1 {
		return p.insertText(len(rows), len(lanes), b.byLog), b.postgresArgs(rows, lanes), lanes
	}
	row := &b.req.Rows[rows[0]]
	s, args := shapeOf(row, &b.req, b.header[rows[0]], row.ID.String(),
		occurredText(row.Event.OccurredAt, rfc3339Micros), row.KeyID[:])
	return p.insertOne.text(s), args, lanes
}

// scanLane reads the new values of the key row of a lane.
func (b *batch) scanLane(res core.Rows, lanes []laneUse) error {
	var lane, prev outboxsql.ID
	var last, first int64
	if err := res.Scan(&lane, &last, &first, &prev); err != nil {
		return err
	}
	for i := range lanes {
		if lanes[i].lane == core.KeyID(lane) {
			lanes[i].lastSeq, lanes[i].prev = last, core.RowID(prev)
			b.number(&lanes[i], first)
		}
	}
	return nil
}

// lanesOf returns the lanes of a chunk, with only its rows: a lane may go on in the next chunk.
func (b *batch) lanesOf(rows []int) []laneUse {
	var lanes []laneUse
	for _, i := range rows {
		row := &b.req.Rows[i]
		if row.KeyID.IsZero() {
			continue
		}
		if n := len(lanes); n == 0 || lanes[n-1].lane != row.KeyID {
			lanes = append(lanes, laneUse{lane: row.KeyID})
		}
		use := &lanes[len(lanes)-1]
		use.rows, use.last = append(use.rows, i), row.ID
	}
	return lanes
}

const (
	postgresHead  = 3 // node, lease, claim number
	postgresLane  = 3
	postgresRow   = 18
	rfc3339Micros = "2006-01-02T15:04:05.000000Z07:00"
)

func (b *batch) postgresArgs(rows []int, lanes []laneUse) []any {
	args := make([]any, 0, postgresHead+len(lanes)*postgresLane+len(rows)*(postgresRow+b2i(b.byLog)))
	args = append(args, b.req.Node, micros(b.req.Lease), b.req.ClaimNo)
	for i := range lanes {
		args = append(args, lanes[i].lane[:], int64(len(lanes[i].rows)), lanes[i].last.String())
	}
	at, left := 0, 0 // lane of the row, and further rows of the lane
	if len(lanes) > 0 {
		left = len(lanes[0].rows)
	}
	for _, i := range rows {
		row := &b.req.Rows[i]
		e := &row.Event
		var lane, back any
		if !row.KeyID.IsZero() {
			if left == 0 {
				at++
				left = len(lanes[at].rows)
			}
			left--
			lane, back = row.KeyID[:], int64(left)
		}
		args = append(args, row.ID.String(), e.ID, e.Type, e.SchemaVersion, e.Topic, orNil(e.AggregateType),
			orNil(e.AggregateID),
			e.AggregateVersion, orNil(e.TenantID), orNil(e.Key), lane, back, notNil(e.Payload), orNil(e.ContentType),
			b.header[i], row.Hot, micros(e.Delay), occurredText(e.OccurredAt, rfc3339Micros))
		if b.byLog {
			args = append(args, row.ByLog)
		}
	}
	return args
}

const insertColumns = "id, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, " +
	"aggregate_version, tenant_id, " +
	"partition_key, lane, key_seq, payload, content_type, headers, claim_no, claimed_by, lease_until, available_at, " +
	"occurred_at, created_at"

// postgresTypes are the types of a row's parameters.
var postgresTypes = [postgresRow]string{
	"uuid", "text", "text", "integer", "text", "text", "text", "bigint", "text", "text", "bytea", "bigint",
	"bytea", "text", "jsonb", "boolean", "bigint", "timestamptz",
}

// postgresInsert returns the statement for n rows and m lanes. Its snapshot may be older than the
// key row that it waited for, so it decides only by the key row itself. If logged is set, each row
// has one more parameter, which is true if a reader of the log publishes the row.
func postgresInsert(n, m int, logged bool) string {
	types, columns, flag, node, ends := postgresTypes[:], insertColumns, "", "", ""
	if logged {
		types = append(slices.Clone(types), "boolean")
		columns, flag, node = columns+", status, done_at", ", by_log", "WHEN v.by_log THEN "+byLog+" "
		ends = ", CASE WHEN v.by_log THEN 1 ELSE 0 END, CASE WHEN v.by_log THEN clock_timestamp() END"
	}
	var s strings.Builder
	p := 0
	param := func(cast string) {
		p++
		s.WriteString("$" + strconv.Itoa(p))
		if cast != "" {
			s.WriteString("::" + cast)
		}
	}
	p = postgresHead
	if m > 0 {
		s.WriteString("WITH k AS (INSERT INTO {key} AS k (lane, last_seq, first_seq, last_id, used_at) " +
			"SELECT v.lane, c.us+v.n-1, c.us, v.last_id, clock_timestamp() FROM (VALUES ")
		for i := range m {
			s.WriteString([]string{", (", "("}[b2i(i == 0)])
			for j, cast := range []string{"bytea", "bigint", "uuid"} {
				if j > 0 {
					s.WriteString(", ")
				}
				param([]string{"", cast}[b2i(i == 0)])
			}
			s.WriteString(")")
		}
		s.WriteString(") v(lane, n, last_id) CROSS JOIN (SELECT (extract(epoch from " +
			"statement_timestamp())*1000000)::bigint AS us) c " +
			"ON CONFLICT (lane) DO UPDATE SET last_seq = " + postgresBefore +
			" + excluded.last_seq - excluded.first_seq + 1, timeline = excluded.timeline, prev_id = k.last_id, " +
			"last_id = excluded.last_id, used_at = excluded.used_at RETURNING lane, last_seq, first_seq, " +
			"prev_id), e AS (")
	}
	s.WriteString("INSERT INTO {event} (" + columns + ") SELECT v.id, v.event_id, v.event_type, " +
		"v.schema_version, v.topic, " +
		"v.aggregate_type, v.aggregate_id, v.aggregate_version, v.tenant_id, v.partition_key, v.lane, ")
	if m > 0 {
		s.WriteString("k.last_seq - v.back")
	} else {
		s.WriteString("v.back")
	}
	s.WriteString(", v.payload, v.content_type, v.headers, CASE WHEN v.hot THEN $3::bigint ELSE 0 END, CASE " + node +
		"WHEN v.hot THEN $1::text END, " +
		"CASE WHEN v.hot THEN clock_timestamp() + $2::bigint * interval '1 microsecond' END, " +
		"clock_timestamp() + v.delay * interval '1 microsecond', v.occurred_at, clock_timestamp()" + ends +
		" FROM (VALUES ")
	for i := range n {
		s.WriteString([]string{", (", "("}[b2i(i == 0)])
		for j, cast := range types {
			if j > 0 {
				s.WriteString(", ")
			}
			param([]string{"", cast}[b2i(i == 0)])
		}
		s.WriteString(")")
	}
	s.WriteString(") v(id, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, " +
		"aggregate_version, tenant_id, " +
		"partition_key, lane, back, payload, content_type, headers, hot, delay, occurred_at" + flag + ")")
	if m > 0 {
		s.WriteString(" LEFT JOIN k ON k.lane = v.lane) SELECT lane, last_seq, first_seq, prev_id FROM k")
	}
	return s.String()
}

// postgresBefore is the number before the next one of a key that exists. After a failover the row of
// the key may be an old one, whose next numbers were given out before. The column's default is the
// timeline, which every failover raises, and then the number continues at the clock.
const postgresBefore = "CASE WHEN k.timeline = excluded.timeline THEN k.last_seq " +
	"ELSE greatest(k.last_seq, excluded.first_seq) END"

// postgresUpsertKey takes the next number of one lane, for a row that is inserted in the next
// statement.
const postgresUpsertKey = `INSERT INTO {key} AS k (lane, last_seq, first_seq, last_id, used_at)
SELECT $1::bytea, c.us, c.us, $2::uuid, clock_timestamp() FROM (SELECT (extract(epoch from
  statement_timestamp())*1000000)::bigint AS us) c
ON CONFLICT (lane) DO UPDATE SET last_seq = ` + postgresBefore + ` + 1, timeline = excluded.timeline,
  prev_id = k.last_id, last_id = excluded.last_id, used_at = excluded.used_at
RETURNING last_seq`

// The INSERT of a single event, which most transactions have, has no joins, and names only the
// columns that the event has: each parameter costs the client and the server.

// postgresOptionals are the types of the parameters for optionalColumns.
var postgresOptionals = [len(optionalColumns)]string{
	"integer", "text", "text", "bigint", "text", "text", "text", "jsonb",
}

// postgresInsertOne returns the INSERT for one row. Its parameters depend on the shape, see
// shapeOf.
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
ON CONFLICT (lane) DO UPDATE SET last_seq = ` + postgresBefore + ` + 1, timeline = excluded.timeline,
  prev_id = k.last_id, last_id = excluded.last_id, used_at = excluded.used_at
RETURNING lane, last_seq, first_seq, prev_id), e AS (` + insert + "SELECT " + strings.Join(values, ", ") +
		" FROM k) SELECT lane, last_seq, first_seq, prev_id FROM k"
}
