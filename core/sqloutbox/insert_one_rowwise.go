package sqloutbox

import "strings"

// insertOneRow returns the INSERT of one event, which most transactions have: it names only the
// columns that the event has. The parameters are those of shapeOf, with the lane and the number as
// the place.
func insertOneRow(s shape) string {
	columns, values := oneRow(s)
	return "INSERT INTO {event} (" + columns + ") VALUES (" + values + ")"
}

// mariadbInsertOne writes nothing outside a transaction; see mariadbKeys.
func mariadbInsertOne(s shape) string {
	columns, values := oneRow(s)
	return "INSERT INTO {event} (" + columns + ") SELECT " + values + " FROM DUAL WHERE @@in_transaction = 1"
}

func oneRow(s shape) (columns, values string) {
	c := []string{"id", "event_id", "event_type", "topic", "payload", "occurred_at"}
	v := []string{"?", "?", "?", "?", "?", "?"}
	add := func(column, value string) { c, v = append(c, column), append(v, value) }
	if s.has(shapeHot) {
		add("claim_no", "?")
		add("claimed_by", "?")
		add("lease_until", "{in}")
	}
	if s.has(shapeByLog) {
		add("status", "1")
		add("claimed_by", byLog)
		add("done_at", "{now}")
	}
	if s.has(shapeDelayed) {
		add("available_at", "{in}")
	} else {
		add("available_at", "{now}")
	}
	if s.has(shapeOrdered) {
		add("lane", "?")
		add("key_seq", "?")
	}
	for i, column := range optionalColumns {
		if s.has(shapeOptional << i) {
			add(column, "?")
		}
	}
	add("created_at", "{now}")
	return strings.Join(c, ", "), strings.Join(v, ", ")
}

// insertText returns the INSERT for rows, and its arguments.
func (w *rowwise) insertText(statements *inserts, b *batch, rows []int) (text string, args []any) {
	if len(rows) > 1 {
		if b.byLog {
			return statements.logged.text(len(rows)), w.rowArgs(b, rows)
		}
		return statements.events.text(len(rows)), w.rowArgs(b, rows)
	}
	row := &b.req.Rows[rows[0]]
	s, args := shapeOf(row, &b.req, b.header[rows[0]], row.ID[:], w.occurred(row.Event.OccurredAt),
		row.KeyID[:], b.places[rows[0]].KeySeq)
	return statements.event.text(s), args
}
