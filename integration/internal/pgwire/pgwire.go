// Package pgwire stands between pgx and PostgreSQL, within the process, and ends connections around
// a COMMIT. It understands the messages of both sides, so it finds a COMMIT in every query mode of
// pgx, alone and behind other statements.
package pgwire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrLost is the error of a connection that was ended.
var ErrLost = errors.New("pgwire: the connection was ended by the test")

// Faults end connections. A statement that contains Mark and Committed or NotCommitted arms the
// connection that it is sent on.
type Faults struct{ armed atomic.Int64 }

// Marks of statements.
const (
	Mark         = "commitfault: "
	Committed    = "committed"
	NotCommitted = "not committed"
)

// Armed returns how often a connection was armed.
func (f *Faults) Armed() int64 { return f.armed.Load() }

// Dial returns a DialFunc whose connections can be armed.
func (f *Faults) Dial(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &faultyConn{Conn: c, faults: f}, nil
	}
}

type faultyConn struct {
	net.Conn
	faults *Faults
	reader Commits

	mu    sync.Mutex
	fault string
}

// SyscallConn implements syscall.Conn.
func (c *faultyConn) SyscallConn() (syscall.RawConn, error) {
	return c.Conn.(syscall.Conn).SyscallConn()
}

func (c *faultyConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if _, after, marked := bytes.Cut(p, []byte(Mark)); marked && c.fault == "" {
		c.fault = Committed
		if bytes.HasPrefix(after, []byte(NotCommitted)) {
			c.fault = NotCommitted
		}
		c.faults.armed.Add(1)
	}
	lose := c.reader.In(p) && c.fault == NotCommitted
	c.mu.Unlock()
	if lose {
		_ = c.Close()
		return 1, ErrLost
	}
	return c.Conn.Write(p)
}

func (c *faultyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault == Committed && bytes.Contains(p[:n], []byte("COMMIT\x00")) {
		_ = c.Close()
		return 0, ErrLost
	}
	return n, err
}

// Commits recognises writes of pgx that execute COMMIT. The zero value is ready.
type Commits struct{ prepared map[string]bool }

// In reports whether p, a write of whole messages, executes COMMIT.
func (c *Commits) In(p []byte) (found bool) {
	for len(p) >= 5 {
		n := int(binary.BigEndian.Uint32(p[1:5])) + 1
		if n < 5 || n > len(p) {
			break // not a message, such as the first one of a connection
		}
		fields := bytes.Split(p[5:n], []byte{0})
		switch p[0] {
		case 'Q':
			text := strings.TrimSpace(strings.ToLower(string(fields[0])))
			found = found || text == "commit" || strings.HasSuffix(text, ";commit")
		case 'P':
			if len(fields) > 1 {
				if c.prepared == nil {
					c.prepared = map[string]bool{}
				}
				c.prepared[string(fields[0])] = strings.EqualFold(string(fields[1]), "commit")
			}
		case 'B':
			found = found || len(fields) > 1 && c.prepared[string(fields[1])]
		}
		p = p[n:]
	}
	return found
}
