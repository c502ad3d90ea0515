package pgxoutbox

import (
	"context"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// frontend stands between a pgproto3.Frontend and its connection. It sends a BEGIN that is owed
// together with the first message of its transaction, and takes the answers to that BEGIN out of
// what the server sends. pgx does not notice: its statement cache, its query modes and its errors
// are as ever.
//
// BEGIN and the statement are in one group up to the same Sync. If the server refuses BEGIN, it
// skips the statement too, so the statement never commits on its own.
//
// pgx may read on one goroutine while it writes on another. All else is used by the owner of the
// connection between its statements.
type frontend struct {
	r    io.Reader
	w    io.Writer
	own  *pgproto3.Frontend // whose reader and writer it is
	pool *building          // shared by the connections of one configuration

	owed   atomic.Pointer[string] // the BEGIN that is owed; nil: none
	failed atomic.Bool            // the server did not execute the BEGIN that was sent
	wait   atomic.Int32           // which answer to BEGIN comes next: an answer
	shift  atomic.Int32           // how many bytes stand before the text of the statement
	writes atomic.Int64           // how often pgx has written

	held []byte // the beginning of a header that pgx has not written to its end
	skip int    // bytes left of a message that is written as it is

	answers answers
}

// newFrontend puts a frontend between own and its connection. build makes own.
func newFrontend(r io.Reader, w io.Writer, build func(io.Reader, io.Writer) *pgproto3.Frontend) *frontend {
	f := &frontend{r: r, w: w}
	f.own = build(f, f)
	return f
}

// owe makes the next message send begin first.
func (f *frontend) owe(begin string) {
	f.failed.Store(false)
	f.owed.Store(&begin)
}

// forget takes a BEGIN back that was not sent. It reports whether there was one.
func (f *frontend) forget() bool { return f.owed.Swap(nil) != nil }

// forgive ends refused: the server has begun the transaction after all.
func (f *frontend) forgive() { f.failed.Store(false) }

// unsent reports whether a BEGIN is owed.
func (f *frontend) unsent() bool { return f.owed.Load() != nil }

// refused reports whether the BEGIN that was sent did not begin a transaction.
func (f *frontend) refused() bool { return f.failed.Load() }

// sent returns a number that changes when something is sent. Without a frontend it is 0.
func (f *frontend) sent() int64 {
	if f == nil {
		return 0
	}
	return f.writes.Load()
}

const headerLen = 5 // type and length of a message

// Write implements io.Writer.
func (f *frontend) Write(p []byte) (int, error) {
	f.writes.Add(1)
	if f.owed.Load() == nil && len(f.held) == 0 {
		return f.w.Write(p)
	}
	all := p
	if len(f.held) > 0 {
		all = append(f.held, p...)
		f.held = nil
	}
	at := 0 // up to here all is written as it is
	for begin := f.owed.Load(); begin != nil; begin = f.owed.Load() {
		pass := min(f.skip, len(all)-at)
		at, f.skip = at+pass, f.skip-pass
		rest := all[at:]
		if len(rest) == 0 {
			break
		}
		if len(rest) < headerLen {
			f.held = append([]byte(nil), rest...)
			all = all[:at]
			break
		}
		switch rest[0] {
		case 'Q':
			return f.send(p, all[:at], queryWith(*begin, rest), rest[headerLen:], len(*begin)+1, answerQuery)
		case 'P', 'B', 'D', 'C', 'E': // Parse, Bind, Describe, Close, Execute
			return f.send(p, all[:at], extended(*begin), rest, 0, answerParse)
		}
		f.skip = 1 + bodyLen(rest) + 4
	}
	if len(all) == 0 {
		return len(p), nil
	}
	n, err := f.w.Write(all)
	return written(n, p, err)
}

// copyMost is how much is copied so that one packet takes BEGIN along.
const copyMost = 16 << 10

// send writes a BEGIN in front of what comes after it. shift and wait are for the answers.
func (f *frontend) send(p, before, begin, after []byte, shift int, wait answer) (int, error) {
	f.shift.Store(int32(shift))
	f.wait.Store(int32(wait))
	f.owed.Store(nil)
	all := append(append(make([]byte, 0, len(before)+len(begin)+min(len(after), copyMost)), before...), begin...)
	if len(after) <= copyMost {
		n, err := f.w.Write(append(all, after...))
		return written(n, p, err)
	}
	if n, err := f.w.Write(all); err != nil {
		return written(n, p, err)
	}
	n, err := f.w.Write(after)
	return written(n+1, p, err)
}

// written returns the result of a Write of p. pgx asks only whether nothing at all was written.
func written(n int, p []byte, err error) (int, error) {
	if err == nil {
		return len(p), nil
	}
	return min(n, len(p)), err
}

// bodyLen returns the length of the body that a header announces.
func bodyLen(header []byte) int {
	return int(uint32(header[1])<<24|uint32(header[2])<<16|uint32(header[3])<<8|uint32(header[4])) - 4
}

func header(b []byte, typ byte, body int) []byte {
	n := uint32(body + 4)
	return append(b, typ, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// queryWith returns the header of a Query and begin, which the text of the statement follows.
func queryWith(begin string, query []byte) []byte {
	b := make([]byte, 0, headerLen+len(begin)+1)
	b = header(b, 'Q', bodyLen(query)+len(begin)+1)
	return append(append(b, begin...), ';')
}

// extended returns begin as messages of the extended protocol, without a Sync.
func extended(begin string) []byte {
	b := header(nil, 'P', len(begin)+4) // no name, the text, no types
	b = append(append(append(b, 0), begin...), 0, 0, 0)
	b = append(header(b, 'B', 8), make([]byte, 8)...)    // no names, no formats, no parameters
	return append(header(b, 'E', 5), make([]byte, 5)...) // no name, all rows
}

// customData is the name under which pgconn.PgConn.CustomData holds the frontend of a connection.
const customData = "github.com/ormoutbox/ormoutbox/pgxoutbox"

// sessionData is the name for the session of a connection of a pool of pgx.
const sessionData = customData + " session"

// install gives every connection that is made from cfg a frontend. Functions that cfg has already
// are kept.
func install(cfg *pgx.ConnConfig) {
	b := &building{}
	build := cfg.BuildFrontend
	if build == nil {
		build = pgproto3.NewFrontend
	}
	cfg.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		f := newFrontend(r, w, build)
		f.pool = b
		b.add(f)
		return f.own
	}
	after := cfg.AfterConnect
	cfg.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if f := b.take(conn); f != nil {
			conn.CustomData()[customData] = f
		}
		if after != nil {
			return after(ctx, conn)
		}
		return nil
	}
}

// frontendOf returns the frontend of a connection, nil if it has none.
func frontendOf(conn *pgconn.PgConn) *frontend {
	f, _ := conn.CustomData()[customData].(*frontend)
	if f == nil || f.own != conn.Frontend() { // a connection that was hijacked and built again
		return nil
	}
	return f
}

// building are the frontends that were built and whose connection is not ready yet. Several may be
// at once, and not every one gets a connection: a server refuses it, or another one is preferred.
type building struct {
	unprepared atomic.Bool // see statements

	mu  sync.Mutex
	all []weak.Pointer[frontend]
}

func (b *building) add(f *frontend) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = slices.DeleteFunc(b.all, func(p weak.Pointer[frontend]) bool { return p.Value() == nil })
	b.all = append(b.all, weak.Make(f))
}

func (b *building) take(conn *pgconn.PgConn) (found *frontend) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = slices.DeleteFunc(b.all, func(p weak.Pointer[frontend]) bool {
		f := p.Value()
		if f != nil && f.own == conn.Frontend() {
			found = f
		}
		return f == nil || f == found
	})
	return found
}
