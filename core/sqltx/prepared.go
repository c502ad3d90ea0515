package sqltx

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/mark"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

const (
	// prepareAt is the execution of a text after which a connection prepares it. The INSERT of an
	// unusual number of events is not worth it.
	prepareAt = 2
	// maxPrepared is how many statements a connection keeps; maxCounted is how many texts it
	// counts.
	maxPrepared = 16
	maxCounted  = 128
)

// prepared has the prepared statements of one connection. Only statements that package mark
// marks are prepared, and only where the driver does not do that itself: pgdriver, pgx in another
// mode than its default one, and go-sql-driver/mysql, which prepares for each execution.
//
// PostgreSQL aborts a transaction after an error. So a text is prepared there before the next
// transaction begins, and only on a direct connection: behind a pooler, the next transaction may
// run in another server process, which does not have the statement.
type prepared struct {
	// off is shared by the connections of a pool. If it is nil, the end of the connection is not
	// observed, and nothing is prepared.
	off   *atomic.Bool
	count map[string]int
	stmts map[string]driver.Stmt
	next  []string // texts to be prepared before the next transaction
	// useful is the answer to whether the driver leaves this to us, on a direct connection.
	asked, useful bool
}

// of returns the prepared statement of a text, or nil. It counts the text.
func (p *prepared) of(ctx context.Context, c *trackingConn, query string, args int) driver.Stmt {
	if p.off == nil || args == 0 || c.dialect == core.SQLite || !mark.Keep(ctx) || p.off.Load() {
		return nil
	}
	if stmt := p.stmts[query]; stmt != nil {
		if !c.IsValid() { // for an unprepared statement the driver itself reports that
			return nil
		}
		return stmt
	}
	if p.count == nil || len(p.count) >= maxCounted {
		p.count = map[string]int{}
	}
	p.count[query]++
	if p.count[query] == prepareAt && c.dialect == core.Postgres && len(p.stmts)+len(p.next) < maxPrepared {
		p.next = append(p.next, query)
	}
	return nil
}

// waits takes the count of a text back if the connection below keeps the INSERT for later. It then
// sees to the statement itself.
func (p *prepared) waits(ctx context.Context, query string) {
	if p.count[query] == 0 || !offerTaken(ctx) {
		return
	}
	if p.count[query] == prepareAt {
		p.next = slices.DeleteFunc(p.next, func(next string) bool { return next == query })
	}
	p.count[query]--
}

// prepareNext prepares frequent texts before a transaction begins. A text that cannot be prepared
// is executed as before, and its execution returns the error.
func (p *prepared) prepareNext(ctx context.Context, c *trackingConn) {
	if len(p.next) == 0 {
		return
	}
	next := p.next
	p.next = nil
	if !p.asked {
		p.asked, p.useful = true, direct(ctx, c.inner)
	}
	if !p.useful {
		p.off = nil
		return
	}
	for _, query := range next {
		p.keep(ctx, c, query)
	}
}

// skipped returns the prepared statement of a text that the driver does not execute without one. It
// is for drivers of MySQL, where an error leaves the transaction open.
func (p *prepared) skipped(ctx context.Context, c *trackingConn, query string) driver.Stmt {
	if p.off == nil || c.dialect != core.MySQL || p.count[query] < prepareAt || len(p.stmts) >= maxPrepared {
		return nil
	}
	return p.keep(ctx, c, query)
}

// keep prepares a text. It returns nil if that fails.
func (p *prepared) keep(ctx context.Context, c *trackingConn, query string) driver.Stmt {
	stmt, err := prepareInner(ctx, c.inner, query)
	if err != nil {
		p.failed(c, err)
		return nil
	}
	if p.stmts == nil {
		p.stmts = map[string]driver.Stmt{}
	}
	p.stmts[query] = stmt
	return stmt
}

// failed looks at the error of a prepared statement, or of preparing it.
func (p *prepared) failed(c *trackingConn, err error) {
	switch state := sqlerr.State(err); {
	case err == nil:
	case state == "26000", state == "0A000": // unknown; or its table was changed
		// A pooler is in between, or somebody deallocates statements: that would happen again.
		p.off.Store(state == "26000" || p.off.Load())
		p.drop()
	case c.dialect == core.Postgres && state == "" && !errors.Is(err, driver.ErrBadConn) && isPgdriver(c.inner):
		// pgdriver closes a connection after an error of the network only for statements that are
		// not prepared. The answer may still come, and the next statement would read it.
		_ = c.inner.Close()
	}
}

// drop forgets the statements.
func (p *prepared) drop() {
	stmts := p.stmts
	p.stmts, p.count, p.next = nil, nil, nil
	for _, stmt := range stmts {
		_ = stmt.Close()
	}
}

// shown looks at a statement of somebody else, which may have deallocated all statements.
func (p *prepared) shown(query string) {
	if len(p.stmts) == 0 {
		return
	}
	query = strings.TrimSpace(query)
	for _, word := range []string{"DISCARD", "DEALLOCATE"} {
		if len(query) > len(word) && strings.EqualFold(query[:len(word)], word) {
			p.drop()
		}
	}
}

// direct reports whether the driver of a PostgreSQL connection leaves statements unprepared, and no
// pooler is between the driver and the server. A pooler reports a process id of its own to the
// driver.
func direct(ctx context.Context, conn driver.Conn) bool {
	conn = driversOwn(conn)
	var own string
	switch {
	case isPgdriver(conn):
		f := reflect.ValueOf(conn).Elem().FieldByName("processID")
		if !f.IsValid() || !f.CanInt() {
			return false
		}
		own = strconv.FormatInt(f.Int(), 10)
	default:
		pgx := pgxConn(conn)
		mode := pgxMode(pgx)
		const cacheStatement = 1 // the default: pgx prepares and keeps every statement itself
		if mode == 0 || mode == cacheStatement {
			return false
		}
		own = pgxProcess(pgx)
	}
	server := serverProcess(ctx, conn)
	return own != "" && own == server
}

// isPgdriver reports whether conn is a connection of pgdriver.
func isPgdriver(conn driver.Conn) bool {
	v := reflect.ValueOf(conn)
	return v.Kind() == reflect.Pointer && !v.IsNil() && v.Elem().Kind() == reflect.Struct &&
		strings.HasSuffix(v.Elem().Type().PkgPath(), "/driver/pgdriver")
}

// pgxMode returns how pgx executes statements, 0 if that is not known.
func pgxMode(pgx reflect.Value) int64 {
	if mode := pgxModeOf(pgx); mode.IsValid() {
		return mode.Int()
	}
	return 0
}

// pgxModeOf is pgxMode with its type, or the zero Value.
func pgxModeOf(pgx reflect.Value) reflect.Value {
	config := called(method(pgx, "Config"))
	if !config.IsValid() || config.Kind() != reflect.Pointer || config.IsNil() {
		return reflect.Value{}
	}
	mode := config.Elem().FieldByName("DefaultQueryExecMode")
	if !mode.IsValid() || !mode.CanInt() {
		return reflect.Value{}
	}
	return mode
}

// pgxProcess returns the server's process id, as pgx has it.
func pgxProcess(pgx reflect.Value) string {
	pid := called(method(called(method(pgx, "PgConn")), "PID"))
	if !pid.IsValid() || !pid.CanUint() {
		return ""
	}
	return strconv.FormatUint(pid.Uint(), 10)
}

// serverProcess asks for the process that executes the statements of a connection.
func serverProcess(ctx context.Context, conn driver.Conn) string {
	q, ok := conn.(driver.QueryerContext)
	if !ok {
		return ""
	}
	rows, err := q.QueryContext(ctx, "SELECT pg_backend_pid()", nil)
	if err != nil {
		return ""
	}
	dest := make([]driver.Value, len(rows.Columns()))
	err = rows.Next(dest)
	if err = errors.Join(err, rows.Close()); err != nil || len(dest) != 1 {
		return ""
	}
	if text, ok := dest[0].([]byte); ok {
		return string(text)
	}
	return fmt.Sprint(dest[0])
}
