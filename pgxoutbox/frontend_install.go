package pgxoutbox

import (
	"context"
	"io"
	"slices"
	"sync"
	"weak"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// customData is the name under which pgconn.PgConn.CustomData holds the frontend of a connection.
const customData = "github.com/ormoutbox/ormoutbox/pgxoutbox"

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
