package sqltext

import "strings"

// statement reads one statement as far as necessary.
func (l *lexer) statement() (Kind, Name) {
	l.skip()
	switch {
	case l.wrong:
		return Opaque, Name{}
	case l.pos == len(l.text):
		return Empty, Name{}
	case l.text[l.pos] == '(' && (l.d == Postgres || l.d == MySQL): // only a query begins with (
		return Harmless, Name{}
	}
	verb := l.word()
	k, name := l.judge(&verb)
	if l.wrong && k != Harmless && k != Hidden {
		return Opaque, Name{}
	}
	return k, name
}

func (l *lexer) judge(verb *keyword) (Kind, Name) {
	switch string(verb.b[:verb.n]) {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "VALUES", "EXPLAIN":
		return Harmless, Name{}
	case "SAVEPOINT":
		return l.named(Savepoint)
	case "RELEASE":
		l.pass("SAVEPOINT")
		return l.named(Release)
	case "ROLLBACK", "ABORT":
		return l.rollback()
	case "COMMIT", "END", "BEGIN", "START", "XA":
		return End, Name{}
	case "PREPARE": // PREPARE TRANSACTION is the first half of a two-phase commit
		if next := l.peek(); next.is("TRANSACTION") {
			return End, Name{}
		}
		return known(l.d != SQLite), Name{}
	case "SAVE": // SQL Server
		if next := l.word(); next.is("TRAN") || next.is("TRANSACTION") {
			return l.named(Savepoint)
		}
		return Opaque, Name{}
	}
	switch l.d {
	case Postgres:
		return postgres(verb), Name{}
	case MySQL:
		return l.mysql(verb), Name{}
	case SQLite:
		return sqlite(verb), Name{}
	case Other:
	}
	return other(verb), Name{}
}

func known(harmless bool) Kind {
	if harmless {
		return Harmless
	}
	return Opaque
}

// postgres judges statements of PostgreSQL. In an open transaction, procedures, DO blocks and
// functions cannot end it (2D000, invalid transaction termination), and PREPARE takes only queries.
func postgres(verb *keyword) Kind {
	switch string(verb.b[:verb.n]) {
	case "MERGE", "TABLE", "COPY", "SET", "RESET", "SHOW", "LOCK", "CALL", "DO", "EXECUTE", "DEALLOCATE", "DECLARE",
		"FETCH", "MOVE", "CLOSE", "CREATE", "ALTER", "DROP", "TRUNCATE", "COMMENT", "GRANT", "REVOKE", "REFRESH",
		"REINDEX", "CLUSTER", "ANALYZE", "ANALYSE", "VACUUM", "NOTIFY", "LISTEN", "UNLISTEN", "DISCARD", "IMPORT",
		"SECURITY", "REASSIGN", "CHECKPOINT", "LOAD", "UPSERT": // CockroachDB
		return Harmless
	}
	return Opaque
}

func sqlite(verb *keyword) Kind {
	switch string(verb.b[:verb.n]) {
	case "REPLACE", "CREATE", "ALTER", "DROP", "PRAGMA", "ANALYZE", "REINDEX", "ATTACH", "DETACH", "VACUUM":
		return Harmless
	}
	return Opaque
}

func other(verb *keyword) Kind {
	switch string(verb.b[:verb.n]) {
	case "MERGE", "REPLACE":
		return Harmless
	}
	return Opaque
}

// mysql has the statements before which MySQL and MariaDB commit, among others. A statement that is
// not in the list is a procedure, a prepared statement, or perhaps an administrative statement that
// commits.
func (l *lexer) mysql(verb *keyword) Kind {
	switch string(verb.b[:verb.n]) {
	case "REPLACE", "TABLE", "SHOW", "DESC", "DESCRIBE", "DO", "USE", "HANDLER", "DEALLOCATE", "SIGNAL", "HELP":
		return Harmless
	case "SET":
		return l.mysqlSet()
	case "CREATE":
		what := l.word()
		if what.is("OR") {
			_ = l.word() // REPLACE
			what = l.word()
		}
		if what.is("TEMPORARY") {
			return Harmless
		}
		return End
	case "DROP":
		if what := l.word(); what.is("TEMPORARY") || what.is("PREPARE") {
			return Harmless
		}
		return End
	case "LOCK":
		if what := l.word(); what.is("TABLE") || what.is("TABLES") {
			return End
		}
	case "ALTER", "TRUNCATE", "RENAME", "GRANT", "REVOKE":
		return End
	}
	return Opaque
}

// mysqlSet accepts statements that set variables, except autocommit, which can commit. SET PASSWORD
// and SET DEFAULT ROLE commit. SET STATEMENT runs another statement.
func (l *lexer) mysqlSet() Kind {
	switch what := l.peek(); string(what.b[:what.n]) {
	case "PASSWORD", "DEFAULT", "STATEMENT":
		return Opaque
	}
	if rest := l.text[l.pos:]; contains(rest, "autocommit") || strings.Contains(rest, "/*") {
		return Opaque
	}
	return Harmless
}

// contains looks for a word in lower case. The text may have any case.
func contains(s, word string) bool {
	for i := 0; i+len(word) <= len(s); i++ {
		if strings.EqualFold(s[i:i+len(word)], word) {
			return true
		}
	}
	return false
}

// pass reads a word if it is the optional word that may stand here.
func (l *lexer) pass(optional string) {
	if next := l.peek(); next.is(optional) {
		_ = l.word()
	}
}

// rollback reads the rest of a ROLLBACK or ABORT.
func (l *lexer) rollback() (Kind, Name) {
	next := l.word()
	if next.is("WORK") || next.is("TRANSACTION") || next.is("TRAN") {
		sqlServer := next.is("TRAN")
		if next = l.word(); sqlServer && next.n > 0 { // ROLLBACK TRAN name
			l.pos -= next.n
			return l.named(RollbackTo)
		}
	}
	if !next.is("TO") {
		// ROLLBACK TRANSACTION x TO s
		if rest := (&lexer{d: l.d, text: l.text, pos: l.pos}); next.n > 0 && l.d == SQLite && rest.passesTo() {
			return Hidden, Name{}
		}
		return End, Name{}
	}
	l.pass("SAVEPOINT")
	return l.named(RollbackTo)
}

func (l *lexer) passesTo() bool {
	next := l.word()
	return next.is("TO")
}

// maxName is the length to which PostgreSQL cuts names; MySQL and MariaDB refuse longer ones.
const maxName = 63

// named reads the name of a savepoint and requires that the statement ends behind it. A name that
// it cannot read is Hidden.
func (l *lexer) named(k Kind) (Kind, Name) {
	l.gap()
	rest := l.text[l.pos:]
	if l.wrong || rest == "" {
		return Hidden, Name{}
	}
	name := Name{}
	switch q := rest[0]; q {
	case '"', '`', '[', '\'':
		n := quoted(rest, false)
		if n < 3 || n < len(rest) && rest[n] == q {
			return Hidden, Name{}
		}
		name.Spelled, name.Folded = rest[:n], rest[1:n-1]
		l.pos += n
	default:
		n := 0
		for n < len(rest) && inWord(rest[n]) {
			n++
		}
		name.Spelled, name.Folded = rest[:n], rest[:n]
		l.pos += n
	}
	if name.Folded == "" || strings.IndexByte(name.Folded, '\\') >= 0 {
		return Hidden, Name{}
	}
	for i := range len(name.Folded) { // other alphabets have comparison rules of their own
		if name.Folded[i] >= 0x80 {
			return Hidden, Name{}
		}
	}
	if l.gap(); l.wrong || l.pos < len(l.text) && l.text[l.pos] != ';' {
		return Hidden, Name{}
	}
	name.Folded = strings.ToLower(strings.TrimRight(name.Folded[:min(len(name.Folded), maxName)], " "))
	return k, name
}
