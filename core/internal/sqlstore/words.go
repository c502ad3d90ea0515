package sqlstore

// word is a piece of SQL that the dialects write differently; arg is what follows the colon in the
// text.
type word func(arg string) string

func fixed(s string) word { return func(string) string { return s } }

// finite is an expression of PostgreSQL about a time, in microseconds. It is NULL for an infinite
// time, which only another program writes: that must not fail a statement that reads other rows too.
func finite(at, expression string) string {
	return "CASE WHEN isfinite(" + at + ") THEN (extract(epoch from " + expression + ")*1000000)::bigint END"
}

// The words of each database. now is the time of the statement by the database's clock. in and ago
// are now plus and minus a parameter in microseconds. left:x is how many microseconds are left
// until the instant x. us:x is the instant x in microseconds since 1970. lock locks the rows of a
// SELECT until the transaction ends. skip does the same and passes over rows that another
// transaction has locked. max is the larger of two values.
var (
	postgresWords = map[string]word{
		"now":  fixed("statement_timestamp()"),
		"in":   fixed("statement_timestamp() + ?::bigint * interval '1 microsecond'"),
		"ago":  fixed("statement_timestamp() - ?::bigint * interval '1 microsecond'"),
		"left": func(arg string) string { return finite(arg, arg+" - statement_timestamp()") },
		"us":   func(arg string) string { return finite(arg, arg) },
		"lock": fixed(" FOR UPDATE"),
		"skip": fixed(" FOR UPDATE SKIP LOCKED"),
		"max":  fixed("GREATEST"),
	}

	mysqlWords = map[string]word{
		"now":  fixed("UTC_TIMESTAMP(6)"),
		"in":   fixed("UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND"),
		"ago":  fixed("UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND"),
		"left": func(arg string) string { return "TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6)," + arg + ")" },
		"us":   func(arg string) string { return "TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00'," + arg + ")" },
		"lock": fixed(" FOR UPDATE"),
		"skip": fixed(" FOR UPDATE SKIP LOCKED"),
		"max":  fixed("GREATEST"),
	}

	sqliteWords = map[string]word{
		"now":  fixed(sqliteNow),
		"in":   fixed(sqliteNow + "+?"),
		"ago":  fixed(sqliteNow + "-?"),
		"left": func(arg string) string { return arg + "-" + sqliteNow },
		"us":   func(arg string) string { return arg },
		"lock": fixed(""),
		"skip": fixed(""),
		"max":  fixed("MAX"),
	}
)

const sqliteNow = "(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)"
