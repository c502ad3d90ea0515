// Package link keeps the connection of a bridge to its broker.
package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// Link is a connection that is made on its first use, and anew after it broke. Its exported fields
// are set before the first use.
type Link[C any] struct {
	// Bridge is the name with which errors begin.
	Bridge string
	// Address is where Dial connects to, without a password.
	Address string
	// Dial connects. It calls functions of the user's configuration, so it may panic.
	Dial func() (C, error)
	// Broken reports whether a connection is of no more use. Nil: it repairs itself.
	Broken func(C) bool
	// HangUp closes a connection.
	HangUp func(C) error
	Logger *slog.Logger
	// Wire dials for a client that reconnects. Optional.
	Wire Wire

	mu      sync.Mutex
	conn    *C          // nil: not connected
	opening *attempt[C] // nil: nobody connects
	failed  error       // why the last attempt failed
	closed  bool
}

// Waiter returns the reason why a publish has no answer yet. The wrappers of a publisher have it,
// so that decorators do not hide it.
type Waiter interface{ WaitsFor() error }

// attempt is one attempt to connect. All who need the connection meanwhile get its outcome.
type attempt[C any] struct {
	done chan struct{}
	conn C
	err  error
}

// Connected returns the connection. It waits until ctx ends for an attempt to connect. Its errors
// have the class Unavailable, unless Dial has marked them.
func (l *Link[C]) Connected(ctx context.Context) (none C, err error) {
	l.mu.Lock()
	if l.closed {
		defer l.mu.Unlock()
		return none, core.Unavailable(watermillbridge.ErrClosed)
	}
	if l.conn != nil && (l.Broken == nil || !l.Broken(*l.conn)) {
		defer l.mu.Unlock()
		return *l.conn, nil
	}
	a, failed := l.opening, l.failed
	if a == nil {
		a = &attempt[C]{done: make(chan struct{})}
		l.opening = a
		go l.open(a)
	}
	l.mu.Unlock()
	select {
	case <-a.done:
		return a.conn, a.err
	case <-ctx.Done():
	}
	return none, core.Unavailable(fmt.Errorf("%w; %w", l.waits(failed), ctx.Err()))
}

// WaitsFor returns what a publish waits for that has no answer.
func (l *Link[C]) WaitsFor() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil || l.opening != nil {
		return l.waits(l.failed)
	}
	return l.last(fmt.Errorf("%s: publish to %s: no answer yet", l.Bridge, l.Address))
}

// waits returns what Connected waits for, after an attempt that failed, or none.
func (l *Link[C]) waits(failed error) error {
	if failed != nil {
		return fmt.Errorf("the attempt before: %w", failed)
	}
	return l.last(l.connectError(errNotYet))
}

var errNotYet = errors.New("no answer yet")

// last adds what went wrong last.
func (l *Link[C]) last(err error) error {
	if failed := l.Wire.Failed(); failed != nil {
		return fmt.Errorf("%w; the last failure of a connection: %w", err, failed)
	}
	return err
}

// connectError is an error of connecting.
func (l *Link[C]) connectError(err error) error {
	return fmt.Errorf("%s: connect to %s: %w", l.Bridge, l.Address, err)
}

// Last returns the last connection. It may have broken.
func (l *Link[C]) Last() (last C, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return last, false
	}
	return *l.conn, true
}

func (l *Link[C]) open(a *attempt[C]) {
	returned := false
	defer func() {
		if !returned {
			a.err = l.panicked(recover())
		}
		l.opened(a)
	}()
	a.conn, a.err = l.Dial()
	returned = true
}

// panicked returns the error of a Dial that did not return. A nil v means that runtime.Goexit ended
// its goroutine.
func (l *Link[C]) panicked(v any) error {
	p := core.NewPanicError(v)
	err := fmt.Errorf("%w: %w", watermillbridge.ErrPanic, p)
	l.Logger.Error(l.Bridge+": connecting panicked", "error", err, "stack", string(p.Stack))
	return err
}

// opened hands the outcome of an attempt to all who wait for it.
func (l *Link[C]) opened(a *attempt[C]) {
	l.mu.Lock()
	if a.err != nil {
		_, marked := core.ClassOf(a.err)
		if a.err = l.connectError(a.err); !marked {
			a.err = core.Unavailable(a.err)
		}
	}
	l.opening, l.failed = nil, a.err
	late := l.closed && a.err == nil
	conn := a.conn
	switch {
	case late:
		var none C
		a.conn, a.err = none, core.Unavailable(watermillbridge.ErrClosed)
	case a.err == nil:
		l.conn = &conn
	}
	close(a.done)
	l.mu.Unlock()
	if late {
		_ = l.HangUp(conn)
	}
}

// Close closes the connection. Later calls of Connected fail with watermillbridge.ErrClosed.
func (l *Link[C]) Close() error {
	l.mu.Lock()
	conn := l.conn
	l.closed, l.conn = true, nil
	l.mu.Unlock()
	if conn == nil {
		return nil
	}
	return l.HangUp(*conn)
}
