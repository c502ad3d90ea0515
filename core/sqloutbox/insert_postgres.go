package sqloutbox

import (
	"context"
	"strconv"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// insert writes the key rows and the events of a chunk in one statement.
func (p *postgres) insert(ctx context.Context, tx core.Tx, b *batch) error {
	return b.chunks(func(rows []int) error {
		if len(rows) == 1 {
			return p.insertOne(ctx, tx, b, rows[0])
		}
		if len(b.lanes) == 0 {
			text := p.sql.insertText(len(rows), 0)
			_, err := tx.Exec(ctx, text, b.postgresArgs(rows, nil)...)
			return err
		}
		lanes := b.lanesOf(rows)
		text := p.sql.insertText(len(rows), len(lanes))
		return sqlkit.EachRow(ctx, tx, text, b.postgresArgs(rows, lanes),
			func(res core.Rows) error { return b.scanLane(res, lanes) })
	})
}

// insertOne is insert for a single event, which most transactions have: a statement without joins
// is a little cheaper for the server.
func (p *postgres) insertOne(ctx context.Context, tx core.Tx, b *batch, i int) error {
	row := &b.req.Rows[i]
	e := &row.Event
	args := []any{
		b.req.Node, micros(b.req.Lease), row.ID.String(), e.ID, e.Type, e.SchemaVersion, e.Topic,
		orNil(e.AggregateType), orNil(e.AggregateID), e.AggregateVersion, orNil(e.TenantID), orNil(e.Key),
		notNil(e.Payload), orNil(e.ContentType), b.header[i], row.Hot, micros(e.Delay),
		occurredText(e.OccurredAt, rfc3339Micros),
	}
	if row.KeyID.IsZero() {
		_, err := tx.Exec(ctx, p.sql.insertOne, args...)
		return err
	}
	lanes := b.lanesOf([]int{i})
	return sqlkit.EachRow(ctx, tx, p.sql.insertOneOrdered, append(args, row.KeyID[:]),
		func(res core.Rows) error { return b.scanLane(res, lanes) })
}

// scanLane reads the new values of the key row of a lane.
func (b *batch) scanLane(res core.Rows, lanes []laneUse) error {
	var lane, prev id16
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
	postgresHead  = 2 // node, lease
	postgresLane  = 3
	postgresRow   = 18
	rfc3339Micros = "2006-01-02T15:04:05.000000Z07:00"
)

func (b *batch) postgresArgs(rows []int, lanes []laneUse) []any {
	args := make([]any, 0, postgresHead+len(lanes)*postgresLane+len(rows)*postgresRow)
	args = append(args, b.req.Node, micros(b.req.Lease))
	for i := range lanes {
		args = append(args, lanes[i].lane[:], int64(len(lanes[i].rows)), lanes[i].last.String())
	}
	at, left := 0, 0 // lane of the row, and rows of it that follow
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
	}
	return args
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
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
// key row that it waited for, so it decides only by the key row itself.
func postgresInsert(n, m int) string {
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
			"ON CONFLICT (lane) DO UPDATE SET last_seq = k.last_seq + excluded.last_seq - excluded.first_seq + 1, " +
			"prev_id = k.last_id, " +
			"last_id = excluded.last_id, used_at = excluded.used_at RETURNING lane, last_seq, first_seq, " +
			"prev_id), e AS (")
	}
	s.WriteString("INSERT INTO {event} (" + insertColumns + ") SELECT v.id, v.event_id, v.event_type, " +
		"v.schema_version, v.topic, " +
		"v.aggregate_type, v.aggregate_id, v.aggregate_version, v.tenant_id, v.partition_key, v.lane, ")
	if m > 0 {
		s.WriteString("k.last_seq - v.back")
	} else {
		s.WriteString("v.back")
	}
	s.WriteString(", v.payload, v.content_type, v.headers, CASE WHEN v.hot THEN 1 ELSE 0 END, CASE WHEN v.hot THEN " +
		"$1::text END, " +
		"CASE WHEN v.hot THEN clock_timestamp() + $2::bigint * interval '1 microsecond' END, " +
		"clock_timestamp() + v.delay * interval '1 microsecond', v.occurred_at, clock_timestamp() FROM (VALUES ")
	for i := range n {
		s.WriteString([]string{", (", "("}[b2i(i == 0)])
		for j, cast := range postgresTypes {
			if j > 0 {
				s.WriteString(", ")
			}
			param([]string{"", cast}[b2i(i == 0)])
		}
		s.WriteString(")")
	}
	s.WriteString(") v(id, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, " +
		"aggregate_version, tenant_id, " +
		"partition_key, lane, back, payload, content_type, headers, hot, delay, occurred_at)")
	if m > 0 {
		s.WriteString(" LEFT JOIN k ON k.lane = v.lane) SELECT lane, last_seq, first_seq, prev_id FROM k")
	}
	return s.String()
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

const (
	insertOneColumns = "id, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, " +
		"aggregate_version, tenant_id, " +
		"partition_key, payload, content_type, headers, claim_no, claimed_by, lease_until, available_at, " +
		"occurred_at, created_at"
	postgresOneValues = "$3::uuid, $4::text, $5::text, $6::integer, $7::text, $8::text, $9::text, $10::bigint, " +
		"$11::text, $12::text, $13::bytea, " +
		"$14::text, $15::jsonb, CASE WHEN $16::boolean THEN 1 ELSE 0 END, CASE WHEN $16::boolean THEN $1::text END, " +
		"CASE WHEN $16::boolean THEN clock_timestamp() + $2::bigint * interval '1 microsecond' END, " +
		"clock_timestamp() + $17::bigint * interval '1 microsecond', $18::timestamptz, clock_timestamp()"

	postgresInsertOne = "INSERT INTO {event} (" + insertOneColumns + ") VALUES (" + postgresOneValues + ")"

	postgresInsertOneOrdered = `WITH k AS (INSERT INTO {key} AS k (lane, last_seq, first_seq, last_id, used_at)
VALUES ($19::bytea, (extract(epoch from statement_timestamp())*1000000)::bigint, (extract(epoch from
  statement_timestamp())*1000000)::bigint,
  $3::uuid, clock_timestamp())
ON CONFLICT (lane) DO UPDATE SET last_seq = k.last_seq + 1, prev_id = k.last_id, last_id = excluded.last_id,
  used_at = excluded.used_at
RETURNING lane, last_seq, first_seq, prev_id), e AS (INSERT INTO {event} (` + insertOneColumns + `, lane, key_seq)
SELECT ` + postgresOneValues + `, k.lane, k.last_seq FROM k) SELECT lane, last_seq, first_seq, prev_id FROM k`
)

// postgresUpsertKey takes the next number of one lane, for a row that is inserted in the next
// statement.
const postgresUpsertKey = `INSERT INTO {key} AS k (lane, last_seq, first_seq, last_id, used_at)
SELECT $1::bytea, c.us, c.us, $2::uuid, clock_timestamp() FROM (SELECT (extract(epoch from
  statement_timestamp())*1000000)::bigint AS us) c
ON CONFLICT (lane) DO UPDATE SET last_seq = k.last_seq + 1, prev_id = k.last_id, last_id = excluded.last_id,
  used_at = excluded.used_at
RETURNING last_seq`
