package sqloutbox

import (
	"strings"
	"time"
)

// newMySQL returns the tables in MariaDB or MySQL. The first transaction that inserts finds out
// which of the two it is.
func newMySQL(p pool, n names) database {
	return newRowwise(p, n, variant{
		locks:    true,
		occurred: func(t time.Time) any { return occurredText(t, mysqlTime) },
		plain: &inserts{ // for MySQL, which has no RETURNING
			events:  newSized(n, valuesInsert),
			keys:    newSized(n, mysqlKeys),
			keyRead: newSized(n, keyRead),
		},
		guarded: &inserts{events: newSized(n, mariadbInsert), keys: newSized(n, mariadbKeys)},
	})
}

const mysqlTime = "2006-01-02 15:04:05.000000"

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

// mariadbInsert writes nothing outside a transaction either.
func mariadbInsert(n int) string {
	const head = "INSERT INTO {event} (" + insertColumns + ") "
	if n == 1 {
		return head + "SELECT " + eventRow + " FROM DUAL WHERE @@in_transaction = 1"
	}
	// The driver sends texts and bytes alike as CHAR, and a union would remove the blanks at their
	// ends.
	const bytes, text = "CAST(? AS BINARY)", "CAST(? AS CHAR)"
	columns := strings.Join([]string{
		bytes, text, text, "?", text, text, text, "?", text, text, bytes, "?", bytes, text, text,
		"?", text, "{in}", "{in}", text, "{now} FROM DUAL WHERE @@in_transaction = 1",
	}, ", ")
	return head + strings.Repeat("SELECT "+columns+" UNION ALL ", n-1) + "SELECT " + columns
}

// mysqlWords are those of MySQL and MariaDB.
var mysqlWords = map[string]word{
	"now":   fixed("UTC_TIMESTAMP(6)"),
	"in":    fixed("UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND"),
	"ago":   fixed("UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND"),
	"clock": fixed("TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))"),
	"us": func(_ names, arg string) string {
		return "TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00'," + arg + ")"
	},
	"first_seq": func(_ names, arg string) string {
		return "CASE WHEN headers IS NULL OR JSON_TYPE(headers) = 'OBJECT' THEN JSON_INSERT(COALESCE(headers, " +
			"'{}'), '$." + arg + "', CAST(key_seq AS CHAR)) ELSE headers END"
	},
	"lock": fixed(" FOR UPDATE SKIP LOCKED"),
	"wait": fixed(" FOR UPDATE"),
	"use":  func(n names, arg string) string { return " FORCE INDEX (" + n.indexOrPrimary(arg) + ")" },
	"max":  fixed("GREATEST"),
	"bin":  func(_ names, arg string) string { return "CAST(" + arg + " AS BINARY)" },

	"topic":  fixed("e.ready_topic"),
	"ready":  fixed(""),
	"lane":   fixed("e.open_lane"),
	"open":   fixed(""),
	"live":   fixed("e.dead = 0 AND "),
	"dead":   fixed("e.dead"),
	"order":  fixed("e.open_lane, e.dead"),
	"openof": fixed("d.open_lane = e.open_lane AND d.dead = 0"),
	"deadof": fixed("d.open_lane = e.open_lane AND d.dead = 1"),
	"ended1": fixed("e.ended = 1"),
	"ended3": fixed("e.ended = 3 AND e.done_at IS NULL"),
	"octets": fixed("OCTET_LENGTH(e.payload)"),
	"noneof": func(n names, _ string) string {
		return "NOT EXISTS (SELECT 1 FROM " + n.event + " e FORCE INDEX (" + n.name("event_open") +
			") WHERE e.open_lane = k.lane)"
	},
}

func (n names) indexOrPrimary(arg string) string {
	if arg == "primary" {
		return "PRIMARY"
	}
	return n.name(arg)
}
