package sqloutbox

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// historyStatements are the statements about the history. They have words for each database: slot
// is the begin of the slot that lasts now, of:x its part for the topic x (param: a parameter; none:
// the empty topic), and ofago the begin of the parts of the slot that is a parameter earlier. later
// is an hour behind a slot, and sum:x the sum of x as an integer.
type historyStatements struct {
	open, set, forget, read string

	add    *sized
	perRow bool // add has the parameters of each row, not a list of each column
}

const (
	historyHead = "INSERT INTO {history} (part, slot, topic, published, refused, died)\n"

	postgresOpenHistory = historyHead + "SELECT {of}, {slot}, '', 0, 0, 0 ON CONFLICT (part) DO NOTHING"
	sqliteOpenHistory   = historyHead + "VALUES ({of}, {slot}, '', 0, 0, 0) ON CONFLICT (part) DO NOTHING"
	mysqlOpenHistory    = "INSERT IGNORE INTO {history} (part, slot, topic, published, refused, died)\n" +
		"VALUES ({of}, {slot}, '', 0, 0, 0)"

	postgresAddHistory = "INSERT INTO {history} AS h (part, slot, topic, published, refused, died)\n" +
		"SELECT {of:v.topic}, {slot}, v.topic, v.published, v.refused, v.died\n" +
		"FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) v(topic, published, refused, died)"
	historyConflict = "\nON CONFLICT (part) DO UPDATE SET published = h.published + excluded.published, " +
		"refused = h.refused + excluded.refused, died = h.died + excluded.died"
	sqliteAddHistory = "INSERT INTO {history} AS h (part, slot, topic, published, refused, died)\nVALUES "
	historyRow       = "({of:param}, {slot}, ?, ?, ?, ?)"
	mysqlConflict    = "\nON DUPLICATE KEY UPDATE published = published + VALUES(published), " +
		"refused = refused + VALUES(refused), died = died + VALUES(died)"

	historySets = "UPDATE {history} SET waiting = ?, dead = ?, blocked_keys = ?, oldest = ?, more = ?\n" +
		"WHERE part = {of}"
	postgresSetHistory = "UPDATE {history} SET waiting = $1::bigint, dead = $2::bigint, blocked_keys = $3::bigint, " +
		"oldest = $4::bigint, more = $5::smallint\nWHERE part = {of}"

	// An hour of slots at once, however many there are after a pause of all relays.
	forgetHistory = "DELETE FROM {history} WHERE part < {ofago} AND\n  slot < (SELECT x.bound FROM " +
		"(SELECT {later} AS " +
		"bound FROM {history} ORDER BY part LIMIT 1) x)"

	readHistory = "SELECT {us:slot}, {sum:published}, {sum:refused}, {sum:died}, MAX(waiting), MAX(dead), " +
		"MAX(blocked_keys), MAX(oldest), MAX(more)\nFROM {history} WHERE part >= {ofago}"
	historyOrder = "\nGROUP BY slot ORDER BY slot LIMIT 2017"
)

// ofTopic is the argument of the word of: an expression for the topic.
func ofTopic(arg string) string {
	switch arg {
	case "":
		return "''"
	case "param":
		return "?"
	}
	return arg
}

// historyDialect is what differs between databases.
type historyDialect struct {
	open, set, topic string
	add              func(rows int) string
	perRow           bool
}

func newHistoryStatements(n names) historyStatements {
	dialect := outboxsql.ByDialect[historyDialect]{
		Postgres: historyDialect{postgresOpenHistory, postgresSetHistory, "$2::text", postgresAdd, false},
		MySQL:    historyDialect{mysqlOpenHistory, historySets, "?", mysqlAdd, true},
		SQLite:   historyDialect{sqliteOpenHistory, historySets, "?", sqliteAdd, true},
	}.Of(n.dialect)
	topic := " AND (" + dialect.topic + " = '' OR topic = " + dialect.topic + ")"
	return historyStatements{
		open: n.expand(dialect.open), set: n.expand(dialect.set), forget: n.expand(forgetHistory),
		read: n.expand(readHistory + topic + historyOrder),
		add:  newSized(n, dialect.add), perRow: dialect.perRow,
	}
}

func postgresAdd(int) string { return postgresAddHistory + historyConflict }

func mysqlAdd(rows int) string {
	return historyHead + "VALUES " + repeat(historyRow, rows) + mysqlConflict
}

func sqliteAdd(rows int) string { return sqliteAddHistory + repeat(historyRow, rows) + historyConflict }

// history is the core.Historian of a Repository.
type history component[historyStatements]

const (
	maxHistoryTopics = 100
	historySlots     = int64(core.HistoryKept / core.HistorySlot)
)

// AddHistory implements core.Historian. It is one statement, and a second one if there are counts.
// The rows are changed in one order, so that relays do not wait for each other in a circle.
func (r *history) AddHistory(ctx context.Context, counts []core.HistoryCounts) (opened bool, err error) {
	n, err := sqlkit.Change(ctx, r.database.write, "add history", r.sql.open)
	if err != nil || len(counts) == 0 {
		return n > 0, err
	}
	counts = slices.Clone(counts[:min(len(counts), maxHistoryTopics)])
	slices.SortFunc(counts, func(a, b core.HistoryCounts) int { return cmp.Compare(a.Topic, b.Topic) })
	text, args := r.addition(counts)
	_, err = sqlkit.Change(ctx, r.database.write, "add history", text, args...)
	return n > 0, err
}

// addition is the statement that adds counts.
func (r *history) addition(counts []core.HistoryCounts) (text string, args []any) {
	text = r.sql.add.text(len(counts))
	if r.sql.perRow {
		for i := range counts {
			c := &counts[i]
			topic := r.names.target(c.Topic)
			args = append(args, topic, topic, c.Published, c.Refused, c.Died)
		}
		return text, args
	}
	number := func(of func(c *core.HistoryCounts) int64) string {
		return column(counts, func(c *core.HistoryCounts) string { return strconv.FormatInt(of(c), 10) })
	}
	return text, []any{
		column(counts, func(c *core.HistoryCounts) string { return c.Topic }),
		number(func(c *core.HistoryCounts) int64 { return c.Published }),
		number(func(c *core.HistoryCounts) int64 { return c.Refused }),
		number(func(c *core.HistoryCounts) int64 { return c.Died }),
	}
}

// SetHistory implements core.Historian.
func (r *history) SetHistory(ctx context.Context, b core.Backlog) error {
	_, err := sqlkit.Change(ctx, r.database.write, "set history", r.sql.set, b.Pending, b.Dead, b.BlockedKeys,
		micros(b.OldestAge), int64(b2i(b.More)))
	if err != nil {
		return err
	}
	_, err = sqlkit.Change(ctx, r.database.write, "forget history", r.sql.forget, historySlots)
	return err
}

// History implements core.Historian.
func (r *history) History(ctx context.Context, since time.Duration, topic string) ([]core.HistoryEntry, error) {
	slots := min(historySlots, max(0, int64(since/core.HistorySlot)))
	args := []any{slots, r.names.target(topic)}
	if r.sql.perRow { // each question mark is a parameter
		args = append(args, args[1])
	}
	scan := func(res core.Rows) (core.HistoryEntry, error) {
		e, err := scanHistory(res)
		e.Topic = topic
		return e, err
	}
	return sqlkit.AskRows(ctx, r.database.read, "history", r.sql.read, args, scan)
}

func scanHistory(res core.Rows) (e core.HistoryEntry, err error) {
	var at int64
	var waiting, dead, blocked, oldest, more *int64
	err = res.Scan(&at, &e.Published, &e.Refused, &e.Died, &waiting, &dead, &blocked, &oldest, &more)
	e.At = time.UnixMicro(at).UTC()
	if e.Counted = waiting != nil && dead != nil && blocked != nil && oldest != nil && more != nil; e.Counted {
		e.Backlog = core.Backlog{
			Pending: *waiting, Dead: *dead, BlockedKeys: *blocked, OldestAge: time.Duration(*oldest) * time.Microsecond,
			More: *more != 0,
		}
	}
	return e, err
}
