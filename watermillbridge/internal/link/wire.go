package link

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
)

// Wire dials for the client of a broker, and remembers the last failure. Clients try again, and in
// the end return only a timeout.
type Wire struct {
	Dialer func(network, address string) (net.Conn, error)

	failed atomic.Pointer[error]
}

// Dial connects. The error of a connection that the server has closed comes from reading: a server
// that refuses the client's certificate sends an alert and closes the connection, and a client
// whose write fails would never read the alert.
func (w *Wire) Dial(network, address string) (net.Conn, error) {
	conn, err := w.Dialer(network, address)
	if err != nil {
		w.note(address, err)
		return nil, err
	}
	c := &wired{Conn: conn, wire: w, address: address}
	c.waits.Store(true)
	return c, nil
}

// Failed returns what went wrong since a server has answered last, or nil.
func (w *Wire) Failed() error {
	if failed := w.failed.Load(); failed != nil {
		return *failed
	}
	return nil
}

func (w *Wire) note(address string, err error) {
	switch {
	case err == nil:
		if w.failed.Load() != nil {
			w.failed.Store(nil)
		}
	case !errors.Is(err, net.ErrClosed): // by the client
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: the server closed the connection", err)
		}
		if _, ok := errors.AsType[*net.OpError](err); !ok {
			err = fmt.Errorf("%s: %w", address, err)
		}
		w.failed.Store(&err)
	}
}

type wired struct {
	net.Conn

	wire    *Wire
	address string
	waits   atomic.Bool // for the server's first bytes, or its answer to written bytes
}

// Read implements net.Conn.
func (c *wired) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	switch {
	case n > 0:
		c.waits.Store(false)
	case !c.waits.Load() && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		return n, err // servers close connections that nobody uses
	}
	c.wire.note(c.address, err)
	return n, err
}

// Write implements net.Conn.
func (c *wired) Write(b []byte) (int, error) {
	c.waits.Store(true)
	n, err := c.Conn.Write(b)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return len(b), nil
	}
	return n, err
}
