package sqlinbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

var _ inbox.Desk = (*Store)(nil)

const (
	maxHandlers = 1000   // that Backlog and Outcomes return
	maxLook     = 10_000 // rows of a consumer and a status that ListFailed looks at for a page
)

// Beside is for package sqlops: it returns a Store for the inbox tables next to an outbox's.
func Beside(r sqlstore.Runner, cfg Config) (*Store, error) {
	one, err := sqlstore.Beside(r, tables, cfg.tables())
	if err != nil {
		return nil, err
	}
	cfg.AutoCreate = false
	s := &Store{cfg: cfg}
	s.use(one)
	return s, nil
}

// deskStatements has the statements for an operator's queries. The parameters of rows and last are
// written as ?, because both get an end.
type deskStatements struct {
	handlers              string
	seen, failures        func(rows int) string
	consumer, status, sum string
	rows, last            string
}

// failureStatus is the number of a status in {failure}: -1 for a discarded event.
const failureStatus = "CASE WHEN status = 0 AND COALESCE(last_error_code,'') = 'discarded' THEN -1 ELSE status END"

var statusNames = map[int]inbox.Status{
	-1: inbox.StatusDiscarded, 0: inbox.StatusRedriven, statusProcessing: inbox.StatusProcessing,
	statusFailed: inbox.StatusFailed, statusDead: inbox.StatusDead,
}

// failureColumns are the columns of a DeadEvent, in the order of scanFailure.
const failureColumns = "consumer, handler, tenant_id, event_id, COALESCE(event_type,''), event_version, " +
	"COALESCE(aggregate_type,''), COALESCE(aggregate_id,''), COALESCE(partition_key,''), " +
	"COALESCE(key_seq,0), COALESCE(source_topic,''), COALESCE(source_partition,0), " +
	"COALESCE(source_offset,0), CASE WHEN source_offset IS NULL THEN 0 ELSE 1 END, attempts, " +
	"COALESCE(last_error_code,''), COALESCE(last_error,''), {us:received_at}, COALESCE({us:failed_at},0)"

// topicOf is the topic of the program that served the handler h last.
const topicOf = "COALESCE((SELECT p.topic FROM {program} p WHERE p.handler_id = h.handler_id ORDER BY p.seen_at DESC " +
	"LIMIT 1),'')"

func newDeskStatements(n sqlstore.Names) deskStatements {
	text := n.Statement
	return deskStatements{
		// The subquery with ORDER BY reads one entry of the index. MySQL reads all of them for MAX.
		handlers: text("SELECT h.consumer, h.handler, " + topicOf + ", COALESCE((SELECT {us:s.processed_at} FROM " +
			"{seen} s WHERE s.handler_id = h.handler_id AND s.processed_at IS NOT NULL ORDER BY s.processed_at DESC " +
			"LIMIT 1),0) FROM {handler} h ORDER BY h.consumer, h.handler LIMIT ?"),
		// One SELECT for each handler: for a list of keys PostgreSQL reads all events of the tenant.
		seen: func(rows int) string {
			return text(unionOf(rows, "CASE WHEN processed_at IS NULL THEN 0 ELSE 1 END, "+
				"COALESCE({us:processed_at},0), attempts, COALESCE(source,'') FROM {seen} WHERE "+seenIs))
		},
		failures: func(rows int) string {
			return text(unionOf(rows, failureStatus+", attempts, COALESCE(last_error_code,''), "+
				"COALESCE(last_error,''), {us:updated_at} FROM {failure} WHERE "+failureIs))
		},

		consumer: text("SELECT consumer FROM {failure} WHERE consumer > ? ORDER BY consumer LIMIT 1"),
		status:   text("SELECT status FROM {failure} WHERE consumer = ? AND status < ? ORDER BY status DESC LIMIT 1"),
		// The time is converted once for each handler: for each row, that is most of the work.
		sum: text("SELECT handler, n, {left:oldest} FROM (SELECT handler, COUNT(*) AS n, MIN(received_at) AS oldest " +
			"FROM (SELECT handler, received_at, status, last_error_code FROM {failure} WHERE consumer = ? AND " +
			"status = ? ORDER BY received_at LIMIT ?) f WHERE " + failureStatus + " >= 0 GROUP BY handler) h"),

		rows: n.Expand("SELECT " + failureColumns + ", " + failureStatus + " FROM (SELECT * FROM {failure} WHERE " +
			"consumer = ? AND status = ? AND received_at >= {at} AND ({us:received_at}, handler, tenant_id, " +
			"event_id) > (?, ?, ?, ?) ORDER BY received_at, handler, tenant_id, event_id LIMIT ?) f WHERE 1 = 1"),
		last: text("SELECT {us:received_at}, handler, tenant_id, event_id FROM {failure} WHERE consumer = ? AND " +
			"status = ? AND received_at >= {at} AND ({us:received_at}, handler, tenant_id, event_id) > (?, ?, ?, ?) " +
			"ORDER BY received_at, handler, tenant_id, event_id LIMIT 1 OFFSET ?"),
	}
}

// unionOf returns n SELECTs of the same columns, each with its number in front.
func unionOf(n int, columns string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(" UNION ALL ")
		}
		b.WriteString("SELECT " + strconv.Itoa(i) + ", " + columns)
	}
	return b.String()
}

// moment is the time of a column in microseconds, zero for none.
func moment(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// each calls fn for each consumer and status that the table of failures has: consumers ascend, and
// statuses descend. It begins behind from. fn returns false to end the walk.
func (s *Store) each(ctx context.Context, what string, only string, from place,
	fn func(consumer string, status int) (bool, error),
) error {
	const above = statusDead + 1
	consumer, status := cmp.Or(only, from.Consumer), above
	if from.Consumer != "" {
		status = from.Status + 1
	}
	for {
		if consumer != "" {
			var found bool
			err := s.db.Single(ctx, what, func(q sqlkit.Querier) (err error) {
				found, err = sqlkit.FirstRow(ctx, q, s.sql.desk.status, []any{consumer, status}, &status)
				return err
			})
			if err != nil {
				return err
			}
			if found {
				if more, err := fn(consumer, status); err != nil || !more {
					return err
				}
				continue
			}
		}
		if only != "" {
			return nil
		}
		next, err := sqlstore.List(ctx, s.db, what, s.sql.desk.consumer, []any{consumer}, sqlkit.Text)
		if err != nil || len(next) == 0 {
			return err
		}
		consumer, status = next[0], above
	}
}

// Backlog implements inbox.Desk.
func (s *Store) Backlog(ctx context.Context, limit int) (all []inbox.Backlog, err error) {
	const what = "backlog"
	if limit < 1 {
		return nil, fmt.Errorf("%w: limit %d is less than 1", inbox.ErrInvalidRequest, limit)
	}
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	if all, err = s.listed(ctx, what); err != nil {
		return nil, err
	}
	of := map[handlerKey]int{}
	for i, b := range all {
		of[handlerKey{b.Consumer, b.Handler}] = i
	}
	err = s.each(ctx, what, "", place{}, func(consumer string, status int) (bool, error) {
		counts, err := sqlstore.List(ctx, s.db, what, s.sql.desk.sum, []any{consumer, status, limit}, scanCount)
		if err != nil {
			return false, err
		}
		total := 0
		for _, c := range counts {
			total += c.n
		}
		for _, c := range counts {
			k := handlerKey{consumer, c.handler}
			i, known := of[k]
			if !known {
				i = len(all)
				of[k], all = i, append(all, inbox.Backlog{Consumer: consumer, Handler: c.handler})
			}
			c.addTo(&all[i], status)
			all[i].More = all[i].More || total >= limit
		}
		return len(all) < maxHandlers, nil
	})
	slices.SortFunc(all, func(a, b inbox.Backlog) int {
		return cmp.Or(cmp.Compare(a.Consumer, b.Consumer), cmp.Compare(a.Handler, b.Handler))
	})
	return all, err
}

// listed returns the handlers that are listed.
func (s *Store) listed(ctx context.Context, what string) ([]inbox.Backlog, error) {
	return sqlstore.List(ctx, s.db, what, s.sql.desk.handlers, []any{maxHandlers},
		func(rows core.Rows) (b inbox.Backlog, err error) {
			var last int64
			err = rows.Scan(&b.Consumer, &b.Handler, &b.Topic, &last)
			b.LastProcessed = moment(last)
			return b, err
		})
}

// handlerCount counts the events of one handler with one status.
type handlerCount struct {
	handler string
	n       int
	oldest  time.Duration
}

func scanCount(rows core.Rows) (c handlerCount, err error) {
	var left int64
	err = rows.Scan(&c.handler, &c.n, &left)
	c.oldest = max(0, -time.Duration(left)*time.Microsecond)
	return c, err
}

func (c handlerCount) addTo(b *inbox.Backlog, status int) {
	b.Oldest = max(b.Oldest, c.oldest)
	switch status {
	case statusFailed:
		b.Failed += c.n
	case statusDead:
		b.Dead += c.n
		b.OldestDead = c.oldest
	case statusProcessing:
		b.Processing += c.n
	default:
		b.Redriven += c.n
	}
}

// place is where a page ends.
type place struct {
	Consumer string `json:"c"`
	Status   int    `json:"s"`
	Received int64  `json:"r"` // in microseconds
	Handler  string `json:"h"`
	Tenant   string `json:"t"`
	EventID  string `json:"e"`
}

func placeOf(e inbox.FailedEvent) place {
	p := place{
		Consumer: e.Consumer, Received: e.ReceivedAt.UnixMicro(), Handler: e.Handler, Tenant: e.Tenant,
		EventID: e.EventID,
	}
	for number, name := range statusNames {
		if name == e.Status {
			p.Status = max(number, 0)
		}
	}
	return p
}

func (p place) String() string { return sqlstore.Cursor(p) }

func parsePlace(after string) (p place, err error) {
	if after == "" {
		return p, nil
	}
	if err := sqlstore.ReadCursor(after, &p); err != nil || p.Consumer == "" {
		return p, fmt.Errorf("%w: FailedQuery.After is not the Next of a page", inbox.ErrInvalidRequest)
	}
	return p, nil
}

// ListFailed implements inbox.Desk.
func (s *Store) ListFailed(ctx context.Context, q inbox.FailedQuery) (page inbox.FailedPage, err error) {
	from, err := parsePlace(q.After)
	if err != nil {
		return page, err
	}
	if q.Consumer != "" && from.Consumer != "" && from.Consumer != q.Consumer {
		return page, fmt.Errorf("%w: FailedQuery.After comes from another query", inbox.ErrInvalidRequest)
	}
	wanted, err := newFailedFilter(q)
	if err != nil {
		return page, err
	}
	if err := s.prepare(ctx); err != nil {
		return page, err
	}
	limit := min(cmp.Or(max(q.Limit, 0), 100), 1000)
	err = s.each(ctx, "list failures", q.Consumer, from, func(consumer string, status int) (bool, error) {
		if !wanted.has(status) {
			return true, nil
		}
		if from.Consumer != consumer || from.Status != status {
			from = place{Consumer: consumer, Status: status}
		}
		return s.listPart(ctx, wanted, &page, from, limit)
	})
	return page, err
}

// listPart adds the events of a consumer and a status behind from to the page. It returns false when
// the page is full.
func (s *Store) listPart(ctx context.Context, wanted failedFilter, page *inbox.FailedPage, from place, limit int,
) (more bool, err error) {
	const what = "list failures"
	behind := []any{from.Consumer, from.Status, from.Received, from.Received, from.Handler, from.Tenant, from.EventID}
	room := limit - len(page.Events)
	look := maxLook
	if !wanted.picks(from.Status) {
		look = room + 1 // MySQL reads as many as that
	}
	text, args := s.sql.desk.rows, append(slices.Clone(behind), look)
	for _, c := range wanted.columns {
		text, args = text+" AND "+c.column+" = ?", append(args, c.value)
	}
	if wanted.status != nil {
		text += fmt.Sprintf(" AND %s = %d", failureStatus, *wanted.status)
	}
	text = s.db.Statement(text + " ORDER BY received_at, handler, tenant_id, event_id LIMIT ?")
	args = append(args, room+1)
	found, err := sqlstore.List(ctx, s.db, what, text, args, func(rows core.Rows) (e inbox.FailedEvent, err error) {
		var status int
		e.DeadEvent, err = scanFailure(rows, &status)
		e.Status = statusNames[status]
		return e, err
	})
	if err != nil {
		return false, err
	}
	page.Events = append(page.Events, found[:min(room, len(found))]...)
	if len(found) > room {
		page.Next = placeOf(page.Events[len(page.Events)-1]).String()
		return false, nil
	}
	if !wanted.picks(from.Status) {
		return true, nil
	}
	// Is this the end, or only the end of the examined rows?
	end, err := sqlstore.List(ctx, s.db, what, s.sql.desk.last, append(behind, look-1),
		func(rows core.Rows) (p place, err error) {
			p = place{Consumer: from.Consumer, Status: from.Status}
			err = rows.Scan(&p.Received, &p.Handler, &p.Tenant, &p.EventID)
			return p, err
		})
	if err != nil {
		return false, err
	}
	if len(end) > 0 {
		page.Next, page.Truncated = end[0].String(), true
		return false, nil
	}
	return true, nil
}

// failedFilter is a FailedQuery as conditions.
type failedFilter struct {
	status  *int // nil: all
	columns []struct{ column, value string }
}

func newFailedFilter(q inbox.FailedQuery) (f failedFilter, err error) {
	for number, name := range statusNames {
		if name == q.Status {
			f.status = &number
		}
	}
	if f.status == nil && q.Status != "" {
		return f, fmt.Errorf("%w: Status %q selects no failures", inbox.ErrInvalidRequest, string(q.Status))
	}
	for _, c := range []struct{ column, value string }{
		{"handler", q.Handler},
		{"tenant_id", q.Tenant},
		{"event_id", q.EventID},
	} {
		if c.value != "" {
			f.columns = append(f.columns, c)
		}
	}
	return f, nil
}

// picks reports whether it leaves rows with that status out.
func (f failedFilter) picks(status int) bool {
	return len(f.columns) > 0 || f.status != nil && status == 0
}

// has reports whether rows with that status in the table can be among the events.
func (f failedFilter) has(status int) bool { return f.status == nil || max(*f.status, 0) == status }

// scanFailure reads failureColumns, and what follows them.
func scanFailure(rows core.Rows, more ...any) (e inbox.DeadEvent, err error) {
	var received, failed int64
	var located int
	err = rows.Scan(append([]any{
		&e.Consumer, &e.Handler, &e.Tenant, &e.EventID, &e.Type, &e.Version, &e.AggregateType, &e.AggregateID,
		&e.PartitionKey, &e.KeySeq, &e.Topic, &e.Partition, &e.Offset, &located, &e.Attempts, &e.Code, &e.Text,
		&received, &failed,
	}, more...)...)
	e.Located = located == 1
	e.ReceivedAt, e.FailedAt = moment(received), moment(failed)
	return e, err
}

// Outcomes implements inbox.Desk. Each row is read by its primary key.
func (s *Store) Outcomes(ctx context.Context, tenant, eventID string) ([]inbox.Outcome, error) {
	if eventID == "" {
		return nil, fmt.Errorf("%w: the id of the event is empty", inbox.ErrInvalidRequest)
	}
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	handlers, err := s.listed(ctx, "find outcomes")
	if err != nil {
		return nil, err
	}
	all := make([]inbox.Outcome, len(handlers))
	for i, h := range handlers {
		all[i] = inbox.Outcome{Consumer: h.Consumer, Handler: h.Handler, Topic: h.Topic}
	}
	for some := range slices.Chunk(all, outcomeChunk) {
		if err := s.outcomes(ctx, some, tenant, eventID); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// outcomeChunk is how many handlers one statement asks for.
const outcomeChunk = 20

// outcomes fills in what the tables have of an event.
func (s *Store) outcomes(ctx context.Context, some []inbox.Outcome, tenant, eventID string) error {
	const what = "find outcomes"
	var seen, failures []any
	for _, o := range some {
		k := inbox.Key{Consumer: o.Consumer, Handler: o.Handler, Tenant: tenant, EventID: eventID}
		seen = append(seen, s.handlers.of(o.Consumer, o.Handler).key(k)...)
		failures = append(failures, failureKey(k)...)
	}
	err := s.db.Single(ctx, what, func(q sqlkit.Querier) error {
		return sqlkit.EachRow(ctx, q, s.sql.desk.seen(len(some)), seen, func(rows core.Rows) error {
			var i, processed, attempts int
			var done int64
			var source string
			err := rows.Scan(&i, &processed, &done, &attempts, &source)
			if err == nil {
				some[i].Source, some[i].Attempts = source, attempts
				if processed == 1 {
					some[i].Status, some[i].At = inbox.StatusProcessed, moment(done)
				}
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	return s.db.Single(ctx, what, func(q sqlkit.Querier) error {
		return sqlkit.EachRow(ctx, q, s.sql.desk.failures(len(some)), failures, func(rows core.Rows) error {
			var i, status, attempts int
			var code, text string
			var updated int64
			if err := rows.Scan(&i, &status, &attempts, &code, &text, &updated); err != nil {
				return err
			}
			o := &some[i]
			o.Code, o.Text = code, text
			switch {
			case o.Status == "":
				o.Status, o.Attempts, o.At = statusNames[status], attempts, moment(updated)
			case status == -1:
				o.Status = inbox.StatusDiscarded
			}
			return nil
		})
	})
}
