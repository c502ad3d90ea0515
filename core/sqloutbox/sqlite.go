package sqloutbox

import "time"

// newSQLite returns the tables in SQLite.
func newSQLite(p pool, n names) database {
	return newRowwise(p, n, variant{
		oneWriter: true, rowids: true,
		occurred: func(t time.Time) any { return t.UnixMicro() },
		plain: &inserts{
			event:  newShaped(n, insertOneRow),
			events: newSized(n, valuesInsert),
			logged: newSized(n, valuesLogged),
			keys:   newSized(n, sqliteKeys),
		},
	})
}

func sqliteKeys(n int) string {
	return keyHead + "VALUES " + repeat(keyRow, n) + " ON CONFLICT (lane) DO UPDATE SET prev_id = last_id, " +
		"last_id = excluded.last_id, last_seq = last_seq + excluded.last_seq - excluded.first_seq + 1, used_at = " +
		"excluded.used_at" + keyReturning
}

const sqliteNow = "(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)"

// sqliteSlot is the number of the slot of the history that lasts now.
const sqliteSlot = "(CAST(strftime('%s','now') AS INTEGER)/300)"

var sqliteWords = map[string]word{
	"now":   fixed(sqliteNow),
	"in":    fixed(sqliteNow + "+?"),
	"ago":   fixed(sqliteNow + "-?"),
	"after": fixed(sqliteNow + "+?"),
	"clock": fixed(sqliteNow),
	"slot":  fixed(sqliteSlot + "*300000000"),
	"of":    func(_ names, arg string) string { return sqliteSlot + "||':'||" + ofTopic(arg) },
	"ofago": fixed("(" + sqliteSlot + "-?)||':'"),
	"later": fixed("slot+3600000000"),
	"sum":   func(_ names, arg string) string { return "SUM(" + arg + ")" },
	"attempt": fixed("substr(COALESCE(failures, '') || " + sqliteNow + " || ' ' || (attempts + 1) || ?, -" +
		keptAttempts + ")"),
	"us": func(_ names, arg string) string { return arg },
	"first_seq": func(_ names, arg string) string {
		return "CASE WHEN headers IS NULL OR json_valid(headers) AND json_type(headers) = 'object' THEN " +
			"json_insert(COALESCE(headers, '{}'), '$." + arg + "', CAST(key_seq AS TEXT)) ELSE headers END"
	},
	"lock": fixed(""),
	"wait": fixed(""),
	"use":  fixed(""),
	"max":  fixed("MAX"),
	"bin":  func(_ names, arg string) string { return arg },

	"topic":  fixed("e.topic"),
	"ready":  fixed("e.status IN (0,2) AND e.lane IS NULL AND "),
	"lane":   fixed("e.lane"),
	"inlane": fixed("e.status IN (0,2,3) AND e.lane IS NOT NULL AND "),
	"isdead": fixed("e.status = 3"),
	"octets": fixed("LENGTH(e.payload)"),
	"noneof": func(n names, _ string) string {
		return "NOT EXISTS (SELECT 1 FROM " + n.event +
			" e WHERE e.lane = k.lane AND e.lane IS NOT NULL AND e.status IN (0,2,3))"
	},
	"address": fixed(", e.rowid"),
	"byid":    fixed(""),
	"at": func(_ names, arg string) string {
		if arg != "" {
			return arg + ".rowid"
		}
		return "rowid"
	},
}
