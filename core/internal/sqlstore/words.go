package sqlstore

// word is a piece of SQL that the dialects write differently; arg is what follows the colon in the
// text.
type word func(arg string) string

func fixed(s string) word { return func(string) string { return s } }

// epoch is an expression of PostgreSQL about a time, in microseconds; it is NULL where the time is.
// Only another program writes an infinite time, or one of the year 200,000. It counts as the nearest
// time within the bounds, so that it fails no statement that reads other rows too.
func epoch(at, from, to, since string) string {
	return "CASE WHEN " + at + " IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(" + at + ", " + from + "), " + to +
		")" + since + ")*1000000)::bigint END"
}

// leftOf and microsOf have bounds that fit a time.Duration and the JSON of a time.Time.
func leftOf(at string) string {
	const now, most = "statement_timestamp()", " interval '36500 days'"
	return epoch(at, now+" -"+most, now+" +"+most, " - "+now)
}

func microsOf(at string) string {
	return epoch(at, "'0001-01-01 00:00:00+00'", "'9999-12-31 00:00:00+00'", "")
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
		"left": leftOf,
		"us":   microsOf,
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
