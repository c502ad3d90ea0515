package pgxoutbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// stall is a connection that stops forwarding without ending.
type stall struct {
	net.Conn
	late  bool          // bytes that are held reach the server after the client has given up
	full  chan struct{} // closed when bytes are held
	ended chan struct{} // closed by Close

	mu          sync.Mutex
	armed       bool
	write, read int // bytes that still pass; -1: all
	held        []byte
	fill, end   sync.Once
}

func newStall(c net.Conn) *stall {
	return &stall{Conn: c, full: make(chan struct{}), ended: make(chan struct{})}
}

// arm lets only so many bytes pass from now on, in each direction.
func (s *stall) arm(write, read int, late bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed, s.write, s.read, s.late = true, write, read, late
}

func (s *stall) hold() { s.fill.Do(func() { close(s.full) }) }

func (s *stall) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.armed || s.write < 0 {
		return s.Conn.Write(p)
	}
	pass := min(s.write, len(p))
	s.write -= pass
	s.held = append(s.held, p[pass:]...)
	if pass < len(p) {
		s.hold()
	}
	if _, err := s.Conn.Write(p[:pass]); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s *stall) Read(p []byte) (n int, err error) {
	if !s.silent() {
		n, err = s.Conn.Read(p)
	}
	s.mu.Lock()
	if s.armed && s.read >= 0 {
		n = min(n, s.read)
		s.read -= n
	}
	s.mu.Unlock()
	if n == 0 && err == nil {
		s.hold()
		<-s.ended
		return 0, net.ErrClosed
	}
	return n, err
}

// silent reports whether the client can read no more bytes.
func (s *stall) silent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.armed && s.read == 0
}

// Close delivers the bytes that are held, if late is set.
func (s *stall) Close() (err error) {
	s.end.Do(func() {
		close(s.ended)
		s.mu.Lock()
		defer s.mu.Unlock()
		tcp, ok := s.Conn.(*net.TCPConn)
		if !s.late || len(s.held) == 0 || !ok {
			err = s.Conn.Close()
			return
		}
		_, err = tcp.Write(s.held)
		err = errors.Join(err, tcp.CloseWrite(), tcp.SetReadDeadline(time.Now().Add(time.Minute)))
		go func() {
			_, _ = io.Copy(io.Discard, tcp)
			_ = tcp.Close()
		}()
	})
	return err
}

// stalled stops the forwarding in the middle of one commit and ends its context. It returns whether
// the row of the application was committed. The row and the event must both be there, or neither.
func (f *flights) stalled(write, read int, late bool) (there bool, heard core.Outcome) {
	f.Helper()
	cfg, err := pgx.ParseConfig(f.db.DSN)
	fixture.NoError(f.T, err)
	cfg.DefaultQueryExecMode = f.mode
	var line *stall
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if line != nil { // a cancel request stalls too
			<-ctx.Done()
			return nil, ctx.Err()
		}
		c, err := dial(ctx, network, addr)
		if err == nil {
			line = newStall(c)
			c = line
		}
		return c, err
	}
	pool := sql.OpenDB(pgxoutbox.Connector(pgxoutbox.Config{Conn: *cfg, CancelGrace: 20 * time.Millisecond}))
	defer pool.Close()
	pool.SetMaxOpenConns(1)
	for range 2 { // so that the statements are prepared
		_, _, err := f.commit(f.Context(), pool, "k", true, func() {})
		fixture.NoError(f.T, err)
	}
	pid := f.pid(pool)
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	id, heard, err := f.commit(ctx, pool, "k", true, func() {
		line.arm(write, read, late)
		go func() {
			select {
			case <-line.full:
				cancel()
			case <-f.Context().Done():
			}
		}()
	})
	fixture.Await(f.T, "the server has ended the connection", func() bool {
		return fixture.Count(f.T, f.direct, fmt.Sprintf("SELECT COUNT(*) FROM pg_stat_activity "+
			"WHERE pid = %d", pid)) == 0
	})
	there = fixture.Count(f.T, f.direct, fmt.Sprintf("SELECT COUNT(*) FROM item WHERE id = %d", f.n.Load())) == 1
	what := fmt.Sprintf("write %d, read %d, late %t: heard %s, row %t, event %t, Commit: %v", write, read, late, heard,
		there, f.stored(id), err)
	switch {
	case f.stored(id) != there:
		f.Errorf("only one of the row and the event is there: %s", what)
	case (err == nil) != (heard == core.Committed):
		f.Errorf("the error and the outcome differ: %s", what)
	case heard == core.Committed && !there, heard == core.RolledBack && there:
		f.Errorf("a lie: %s", what)
	case heard == core.Unknown && (!errors.Is(err, core.ErrCommitUnknown) || !errors.Is(err, context.Canceled)):
		f.Errorf("an unknown outcome without its errors: %s", what)
	}
	return there, heard
}

// The connection stalls in the middle of a commit, and so does the cancel request when the context
// ends. Commit still returns. It says that the outcome is unknown, unless it has the answer.
// Afterwards the row and the event are both there, or neither, even if the held bytes reach the
// server after Commit has returned. A relay publishes exactly the events that are there.
func TestPgxServerStallsInCommit(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			f := newFlights(t, protocol{mode: mode})
			wrote, got := f.one(true, -1, -1)
			step := 3
			if testing.Short() {
				step = 11
			}
			unknown := map[bool]int{} // unknown outcomes, by whether the transaction has committed
			try := func(write, read int, late bool) {
				if there, heard := f.stalled(write, read, late); heard == core.Unknown {
					unknown[there]++
				}
			}
			for n := wrote % step; n < wrote; n += step {
				try(n, -1, false)
				try(n, -1, true)
			}
			for n := got % step; n < got; n += step {
				try(-1, n, false)
			}
			fixture.Check(t, unknown[true] != 0 && unknown[false] != 0,
				"unknown outcomes by whether it has committed: %v, want both", unknown)

			published := &outboxtest.Publisher{}
			fixture.RunRelay(t, fixture.NewOutbox(t, f.db, core.Config{Publisher: published, Relay: relay.Config{}}))
			stored := fixture.Query(t, f.direct, "SELECT event_id FROM outbox_event",
				func(r *sql.Rows) (s string, err error) { return s, r.Scan(&s) })
			fixture.Await(t, "all events are published", func() bool {
				return len(published.Accepted()) >= len(stored)
			})
			var arrived []string
			for _, d := range published.Accepted() {
				arrived = append(arrived, d.ID)
			}
			fixture.SameSet(t, "published events", arrived, stored)
		})
	}
}
