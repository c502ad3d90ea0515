package pgxoutbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// keepAt is the execution of a text with which a connection prepares it. The INSERT of an
	// unusual number of events is not worth it.
	keepAt = 2
	// mostKept is how many statements of a purpose a connection keeps; mostCounted is how many
	// texts it counts.
	mostKept    = 16
	mostCounted = 128
)

// statements are the INSERTs of flights and the claims that a connection executes by name, in the
// query modes of pgx that otherwise have the server parse and plan each of them. A statement is
// prepared in the batch that executes it, so that costs no round trip.
//
// A COMMIT must not fail because a statement is gone. So a statement is prepared again after
// anything that may have deallocated it, and nothing is prepared behind a pooler, where the next
// transaction may run in another server process.
type statements struct {
	// off is shared by the connections of a pool: a statement was gone all the same. It is nil if
	// nothing is prepared on this connection.
	off           *atomic.Bool
	asked, direct bool // whether no pooler is in between
	count         map[string]int
	kept          map[string]*statement // by their texts
	sizes         [purposes]int         // how many are kept
}

// purpose is the use of a statement. The many texts of one purpose do not displace another's.
type purpose uint8

const (
	inserts purpose = iota
	claims          // claims, and other statements that run alone
	purposes
)

// statement is a statement that a connection keeps.
type statement struct {
	// name depends on the text alone. So a statement of this name that another connection has left
	// at the server, through a pooler that was not recognised, has the same text.
	name string
	// described is the server's description of it, or nil if the server may have lost the
	// statement.
	described *pgconn.StatementDescription
}

// describe records the server's description of a statement that it has prepared.
func (st *statement) describe(d *pgconn.StatementDescription) {
	st.described = &pgconn.StatementDescription{Name: st.name, SQL: d.SQL, ParamOIDs: d.ParamOIDs, Fields: d.Fields}
}

// of returns the statement for a text, or nil if the text is not to be prepared. It counts the
// text.
func (p *statements) of(text string, why purpose) *statement {
	if p.off == nil || p.off.Load() {
		return nil
	}
	if st := p.kept[text]; st != nil {
		return st
	}
	if p.count == nil || len(p.count) >= mostCounted {
		p.count = map[string]int{}
	}
	p.count[text]++
	if p.count[text] < keepAt || !p.direct || p.sizes[why] >= mostKept {
		return nil
	}
	p.sizes[why]++
	if p.kept == nil {
		p.kept = map[string]*statement{}
	}
	sum := sha256.Sum256([]byte(text))
	st := &statement{name: "outbox_" + hex.EncodeToString(sum[:16])}
	p.kept[text] = st
	return st
}

// ask finds out, once a text was counted, whether the connection leads to its server directly. A
// pooler reports a process id of its own to pgx. ask is called while no transaction is open.
func (p *statements) ask(ctx context.Context, pg *pgconn.PgConn) {
	if p.off == nil || p.asked || len(p.count) == 0 {
		return
	}
	p.asked = true
	results, err := pg.Exec(ctx, "SELECT pg_backend_pid()").ReadAll()
	if err != nil || len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) != 1 {
		return
	}
	p.direct = string(results[0].Rows[0][0]) == strconv.FormatUint(uint64(pg.PID()), 10)
}

// failed looks at the error of a statement.
func (p *statements) failed(err error) {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return
	}
	switch pgErr.Code {
	case "26000": // somebody deallocates statements unseen: that would happen again
		p.off.Store(true)
		p.doubt()
	case "0A000": // a table was changed
		p.doubt()
	}
}

// none reports whether nothing is kept.
func (p *statements) none() bool { return len(p.kept) == 0 }

// doubt makes the next batches prepare their statements again.
func (p *statements) doubt() {
	for _, st := range p.kept {
		st.described = nil
	}
}

// shown looks at a statement of the application. extended: it goes through the extended protocol.
func (p *statements) shown(text string, extended bool) {
	if !p.none() && !keeps(text, extended) {
		p.doubt()
	}
}

// keeps reports whether a text certainly deallocates no statement, apart from functions that do. It
// has a list of what may pass, as judge has.
func keeps(text string, extended bool) bool {
	_, known := firstWord(text)
	if !known || !extended && !single(text) {
		return false
	}
	word := text[:min(len(text), 4)]
	return !strings.EqualFold(word, "CALL") && !strings.EqualFold(word[:min(len(word), 2)], "DO")
}
