package sqloutbox

import (
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
)

// newMySQL returns the tables in MariaDB or MySQL. The first transaction that inserts finds out
// which of the two it is.
func newMySQL(p pool, n names) database {
	return newRowwise(p, n, variant{
		locks:    true,
		occurred: func(t time.Time) any { return occurredText(t, outboxsql.MySQLTime) },
		plain: &inserts{ // for MySQL, which has no RETURNING
			event:   newShaped(n, insertOneRow),
			events:  newSized(n, valuesInsert),
			logged:  newSized(n, valuesLogged),
			keys:    newSized(n, mysqlKeys),
			keyRead: newSized(n, keyRead),
		},
		guarded: &inserts{
			event:  newShaped(n, mariadbInsertOne),
			events: newSized(n, func(rows int) string { return mariadbInsert(rows, "", "") }),
			logged: newSized(n, func(rows int) string { return mariadbInsert(rows, loggedColumns, loggedRow) }),
			keys:   newSized(n, mariadbKeys),
		},
	})
}

// mysqlUpdate: the order of the assignments matters.
const mysqlUpdate = " ON DUPLICATE KEY UPDATE prev_id = last_id, last_id = VALUES(last_id), " +
	"last_seq = last_seq + VALUES(last_seq) - VALUES(first_seq) + 1, used_at = VALUES(used_at)"

func mysqlKeys(n int) string { return keyHead + "VALUES " + repeat(keyRow, n) + mysqlUpdate }

// mariadbKeys writes nothing outside a transaction: a deadlock whose error was ignored may have
// ended the caller's transaction.
func mariadbKeys(n int) string {
	values := "SELECT ? AS c1, {clock}+? AS c2, {clock} AS c3, ? AS c4, {now} AS c5 FROM DUAL WHERE " +
		"@@in_transaction = 1"
	if n > 1 {
		row := "SELECT CAST(? AS BINARY(16)) AS c1, {clock}+? AS c2, {clock} AS c3, CAST(? AS BINARY(16)) AS c4, " +
			"{now} AS c5"
		values = "SELECT c1, c2, c3, c4, c5 FROM (" + strings.Repeat(row+" UNION ALL ", n-1) + row +
			") v WHERE @@in_transaction = 1"
	}
	return keyHead + values + mysqlUpdate + keyReturning
}

// mariadbInsert writes nothing outside a transaction either. more are further columns, and values
// are their values.
func mariadbInsert(n int, more, values string) string {
	head := "INSERT INTO {event} (" + insertColumns + more + ") "
	// The driver sends texts and bytes alike as CHAR, and a union would remove the blanks at their
	// ends.
	const bytes, text = "CAST(? AS BINARY)", "CAST(? AS CHAR)"
	// A union makes a column as wide as its values have characters, and cuts values without
	// characters: C2, say, only begins a character. UNCOMPRESS is not called, because no payload is
	// NULL. Its type LONGBLOB becomes the column's.
	const payload = "COALESCE(" + bytes + ", UNCOMPRESS(''))"
	columns := strings.Join([]string{
		bytes, text, text, "?", text, text, text, "?", text, text, bytes, "?", payload, text, text,
		"?", text, "{in}", "{in}", text, "{now}",
	}, ", ") + values + " FROM DUAL WHERE @@in_transaction = 1"
	return head + strings.Repeat("SELECT "+columns+" UNION ALL ", n-1) + "SELECT " + columns
}

// mysqlSlot is the number of the slot of the history that lasts now.
const mysqlSlot = "TIMESTAMPDIFF(SECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP()) DIV 300"

// mysqlWords are the words of MySQL and MariaDB.
var mysqlWords = map[string]word{
	"now":   fixed("UTC_TIMESTAMP(6)"),
	"in":    fixed("UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND"),
	"ago":   fixed("UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND"),
	"after": fixed("UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND"),
	"clock": fixed("TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))"),
	"slot":  fixed("TIMESTAMP'1970-01-01 00:00:00' + INTERVAL (" + mysqlSlot + ") * 300 SECOND"),
	"of":    func(_ names, arg string) string { return "CONCAT(" + mysqlSlot + ", ':', " + ofTopic(arg) + ")" },
	"ofago": fixed("CONCAT((" + mysqlSlot + ") - ?, ':')"),
	"later": fixed("slot + INTERVAL 1 HOUR"),
	"sum":   func(_ names, arg string) string { return "CAST(SUM(" + arg + ") AS SIGNED)" },
	// failures is set before attempts: MySQL reads what an assignment to the left has written
	"attempt": fixed("RIGHT(CONCAT(COALESCE(failures, ''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00'," +
		"UTC_TIMESTAMP(6)), ' ', attempts + 1, ?), " + keptAttempts + ")"),
	"us": func(_ names, arg string) string {
		return "TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00'," + arg + ")"
	},
	"first_seq": func(_ names, arg string) string {
		return "CASE WHEN headers IS NULL OR JSON_TYPE(headers) = 'OBJECT' THEN JSON_INSERT(COALESCE(headers, " +
			"'{}'), '$." + arg + "', CAST(key_seq AS CHAR)) ELSE headers END"
	},
	"lock": fixed(" FOR UPDATE SKIP LOCKED"),
	"wait": fixed(" FOR UPDATE"),
	"use":  func(n names, arg string) string { return " FORCE INDEX (" + n.mysqlIndex(arg) + ")" },
	"max":  fixed("GREATEST"),
	"bin":  func(_ names, arg string) string { return "CAST(" + arg + " AS BINARY)" },

	"topic":  fixed("e.ready_topic"),
	"ready":  fixed("e.open_lane IS NULL AND e.key_seq IS NULL AND "),
	"lane":   fixed("e.open_lane"),
	"inlane": fixed(""),
	"isdead": fixed("e.dead = 1"),
	"octets": fixed("OCTET_LENGTH(e.payload)"),
	"noneof": func(n names, _ string) string {
		return "NOT EXISTS (SELECT 1 FROM " + n.event + " e FORCE INDEX (" + n.name("event_work") +
			") WHERE e.open_lane = k.lane)"
	},
	"address": fixed(""),
	"byid":    fixed(" ORDER BY e.id"),
	"at": func(_ names, arg string) string {
		if arg != "" {
			return arg + ".id"
		}
		return "id"
	},
}

// mysqlIndexes are the indexes of the words use:x.
var mysqlIndexes = map[string]string{
	"event_ready": "event_work", "event_lanes": "event_work", "event_dead": "event_dead",
	"event_cause": "event_cause",
}

func (n names) mysqlIndex(arg string) string {
	if arg == "primary" {
		return "PRIMARY"
	}
	return n.name(mysqlIndexes[arg])
}
