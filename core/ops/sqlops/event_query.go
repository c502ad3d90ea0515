package sqlops

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// eventQuery builds the statements that list events. Their texts depend on the query, and are not
// on the hot path.
type eventQuery struct {
	*Store
	args []any
	scan ops.Scan
	part *part
	// filtered: the filter needs conditions besides the order of the part.
	filtered bool
	wheres   []func() string // conditions on the rows that are looked at
}

// order returns the columns of the order of a part: inside its index, and the same ones outside. A
// column that the part has fixed is left out, because MariaDB would sort the rows otherwise.
func (p *part) order() (inside, outside []string) {
	switch {
	case p.index == byTopic && p.topic == "":
		return []string{"{topic}", "e.available_at", "e.id"}, []string{"e.topic", "e.available_at", "e.id"}
	case p.index == byTopic:
		inside = []string{"e.available_at", "e.id"}
	case p.index == byLane && p.lane.IsZero():
		return []string{"{lane}", "e.key_seq"}, []string{"e.lane", "e.key_seq"}
	case p.index == byLane:
		inside = []string{"e.key_seq"}
	default:
		inside = []string{"e.id"}
	}
	return inside, inside
}

// partStatuses are the statuses of the rows of an index.
var partStatuses = map[index][]ops.Status{
	byID:    {ops.StatusNew, ops.StatusDone, ops.StatusRetry, ops.StatusDead, ops.StatusDiscarded},
	byCause: {ops.StatusNew, ops.StatusDone, ops.StatusRetry, ops.StatusDead, ops.StatusDiscarded},
	byDead:  {ops.StatusDead},
	byTopic: {ops.StatusNew, ops.StatusRetry},
	byLane:  {ops.StatusNew, ops.StatusRetry, ops.StatusDead},
}

func (q *eventQuery) arg(v any, cast string) string {
	q.args = append(q.args, v)
	return q.params.Mark(len(q.args), cast)
}

func (q *eventQuery) id(id core.RowID) string  { return q.arg(q.params.ID(id), "uuid") }
func (q *eventQuery) time(t time.Time) string  { return q.arg(q.params.Time(t), "timestamptz") }
func (q *eventQuery) lane(lane []byte) string  { return q.arg(lane, "bytea") }
func (q *eventQuery) int(n int64) string       { return q.arg(n, "bigint") }
func (q *eventQuery) text(s string) string     { return q.arg(s, "text") }
func (q *eventQuery) limit(n int) string       { return q.int(int64(n)) }
func (q *eventQuery) where(cond func() string) { q.wheres = append(q.wheres, cond) }

// newEventQuery finds the conditions that the part does not imply.
func newEventQuery(st *Store, s ops.Scan, p *part) *eventQuery {
	q := &eventQuery{Store: st, scan: s, part: p}
	equal := func(column, value string) {
		if value != "" {
			q.where(func() string { return "{bin:e." + column + "} = " + q.text(value) })
		}
	}
	if statuses := q.statuses(); statuses != "" {
		q.where(func() string { return "e.status IN (" + statuses + ")" })
	}
	equal("event_id", s.EventID)
	equal("event_type", s.Type)
	if p.topic == "" {
		equal("topic", s.Topic)
	}
	if p.cause == "" {
		equal("causation_id", s.Cause)
	}
	if s.Key != "" && s.TenantID == "" {
		q.where(func() string { return "COALESCE(e.tenant_id,'') = ''" })
	}
	equal("tenant_id", s.TenantID)
	equal("partition_key", s.Key)
	equal("aggregate_type", s.AggregateType)
	equal("aggregate_id", s.AggregateID)
	equal("last_error_code", s.ErrorCode)
	equal("error_group", s.Fingerprint)
	if !s.CreatedFrom.IsZero() {
		q.where(func() string { return "e.created_at >= " + q.time(s.CreatedFrom) })
	}
	if !s.CreatedBefore.IsZero() {
		q.where(func() string { return "e.created_at < " + q.time(s.CreatedBefore) })
	}
	if p.noLane {
		q.where(func() string { return "e.lane IS NULL" })
	}
	if p.ended {
		q.where(func() string { return "e.status IN (1,4)" })
	}
	q.filtered = len(q.wheres) > 0
	return q
}

// statuses are the wanted statuses of a part that has others too.
func (q *eventQuery) statuses() string {
	inPart := partStatuses[q.part.index]
	var wanted []string
	for _, s := range inPart {
		if q.scan.Has(s) {
			wanted = append(wanted, strconv.Itoa(int(s)))
		}
	}
	if len(wanted) == len(inPart) {
		return ""
	}
	return strings.Join(wanted, ",")
}

// events returns the statement that looks at up to look rows behind a place, and returns up to want
// of them.
func (q *eventQuery) events(from cursor, look, want int) string {
	if !q.filtered {
		return q.tables.Expand("SELECT " + outboxsql.EventColumns + q.looked(from) + " LIMIT " + q.limit(look))
	}
	_, order := q.part.order()
	columns, join := outboxsql.LookedColumns, " e"
	if q.params.Copies {
		columns, join = strings.Join(order, ", "), " l JOIN {event} e ON e.id = l.id"
		if !slices.Contains(order, "e.id") {
			columns += ", e.id"
		}
	}
	text := "SELECT " + outboxsql.EventColumns + " FROM (SELECT " + columns + q.looked(from) + " LIMIT " +
		q.limit(look) + ")" + join
	conds := make([]string, len(q.wheres))
	for i, cond := range q.wheres {
		conds[i] = cond()
	}
	by := q.orderBy(order)
	if q.params.Copies { // the order of the copy: rows are read until there are enough
		by = strings.ReplaceAll(by, "e.", "l.")
	}
	return q.tables.Expand(text + " WHERE " + strings.Join(conds, " AND ") + by + " LIMIT " + q.limit(want))
}

// last returns the statement for the last of the rows that are looked at, and the one behind it.
func (q *eventQuery) last(from cursor, look int) string {
	text := "SELECT e.id, e.topic, {us:e.available_at}, e.lane, COALESCE(e.key_seq,0)" + q.looked(from)
	return q.tables.Expand(text + " LIMIT 2 OFFSET " + q.limit(look-1))
}

// looked is the FROM of the rows of a part behind a place, in its order.
func (q *eventQuery) looked(from cursor) string {
	p, text := q.part, " FROM {event} e"
	switch p.index {
	case byID:
		text += "{use:primary} WHERE e.id >= " + q.id(p.first)
		if !p.last.IsZero() {
			text += " AND e.id <= " + q.id(p.last)
		}
	case byDead:
		text += "{use:event_dead} WHERE {isdead}"
	case byCause:
		text += "{use:event_cause} WHERE e.causation_id = " + q.text(p.cause)
	case byTopic:
		text += "{use:event_ready} WHERE {ready}"
		if p.topic == "" {
			text += "{topic} IS NOT NULL"
		} else {
			text += "{topic} = " + q.text(p.topic)
		}
	case byLane:
		text += "{use:event_lanes} WHERE {inlane}"
		if p.lane.IsZero() {
			text += "{lane} IS NOT NULL"
		} else {
			text += "{lane} = " + q.lane(p.lane[:])
		}
		if q.scan.AfterSeq != 0 {
			text += " AND e.key_seq > " + q.int(q.scan.AfterSeq)
		}
		if q.scan.BeforeSeq != 0 {
			text += " AND e.key_seq < " + q.int(q.scan.BeforeSeq)
		}
	}
	columns, _ := p.order()
	if !from.ID.IsZero() {
		text += " AND " + q.behind(columns, from)
	}
	return text + q.orderBy(columns)
}

// value is the parameter for the value that a column has at a place.
func (q *eventQuery) value(column string, at cursor) string {
	switch column {
	case "{topic}":
		return q.text(at.Topic)
	case "e.available_at":
		return q.time(time.UnixMicro(at.Due))
	case "{lane}":
		return q.lane(at.Key)
	case "e.key_seq":
		return q.int(at.Seq)
	}
	return q.id(at.ID)
}

// behind is the condition on the columns of an order that a row comes behind a place.
func (q *eventQuery) behind(columns []string, place cursor) string {
	than := " > "
	if q.scan.Newest {
		than = " < "
	}
	if len(columns) == 1 {
		return columns[0] + than + q.value(columns[0], place)
	}
	if q.params.CompareRows {
		values := make([]string, len(columns))
		for i, c := range columns {
			values[i] = q.value(c, place)
		}
		return "(" + strings.Join(columns, ", ") + ")" + than + "(" + strings.Join(values, ", ") + ")"
	}
	// the ranges of an index, one for each column
	var ranges []string
	for i, c := range columns {
		var conds []string
		for _, same := range columns[:i] {
			conds = append(conds, same+" = "+q.value(same, place))
		}
		ranges = append(ranges, strings.Join(append(conds, c+than+q.value(c, place)), " AND "))
	}
	return "(" + strings.Join(ranges, " OR ") + ")"
}

func (q *eventQuery) orderBy(columns []string) string {
	direction := ""
	if q.scan.Newest {
		direction = " DESC"
	}
	return " ORDER BY " + strings.Join(columns, direction+", ") + direction
}

// content is the statement for the content of a row.
func (q *eventQuery) content(id core.RowID) string {
	return "SELECT e.payload, COALESCE(e.content_type,''), e.headers, e.event_id, e.topic " +
		"FROM {event} e{use:primary} WHERE e.id = " + q.id(id)
}

// failures is the statement for the failed attempts of a row.
func (q *eventQuery) failures(id core.RowID) string {
	return "SELECT COALESCE(e.failures,'') FROM {event} e{use:primary} WHERE e.id = " + q.id(id)
}

// audit is the statement for the manual actions on a row.
func (q *eventQuery) audit(id core.RowID) string {
	return "SELECT {us:a.at}, a.action, a.actor, a.reason, a.new_id, COALESCE(a.detail, '') FROM {audit} a " +
		"WHERE a.row_id = " + q.id(id) + " ORDER BY a.id DESC LIMIT 100"
}
