package cli

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// sharedListener listens for the commits of all outboxes of a database, on one connection.
type sharedListener struct {
	cfg *pgx.ConnConfig

	mu      sync.Mutex
	session *listenSession // nil: nobody listens
}

// listenTimeout is how long a LISTEN may take. A connection that is lost may stay silent for hours.
const listenTimeout = 5 * time.Second

// listenSession is a connection that listens, from its first listener to its last or to an error.
type listenSession struct {
	end       context.CancelFunc
	listeners []*listenerOf // guarded by sharedListener.mu
	interrupt func()        // ends its wait for a notification; guarded by sharedListener.mu
}

// listenerOf is one call of Listen of an outbox.
type listenerOf struct {
	channel string
	wake    func()
	ready   bool // the connection listens on its channel
	failed  chan error
}

// listen returns a function for core.WakePolicy.Listen.
func (l *sharedListener) listen(channel string) func(ctx context.Context, wake func()) error {
	return func(ctx context.Context, wake func()) error {
		one := &listenerOf{channel: channel, wake: wake, failed: make(chan error, 1)}
		leave := l.join(ctx, one)
		defer leave()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-one.failed:
			return err
		}
	}
}

// join adds a listener, and connects if it is the first one.
func (l *sharedListener) join(ctx context.Context, one *listenerOf) (leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.session
	if s == nil {
		s = &listenSession{interrupt: func() {}}
		ctx, s.end = context.WithCancel(context.WithoutCancel(ctx)) // others may join it
		l.session = s
		go l.run(ctx, s)
	}
	s.listeners = append(s.listeners, one)
	s.interrupt()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		s.listeners = slices.DeleteFunc(s.listeners, func(o *listenerOf) bool { return o == one })
		if len(s.listeners) > 0 {
			return
		}
		s.end()
		if l.session == s {
			l.session = nil
		}
	}
}

// run ends all listeners of a session with its error.
func (l *sharedListener) run(ctx context.Context, s *listenSession) {
	err := l.follow(ctx, s)
	l.mu.Lock()
	defer l.mu.Unlock()
	s.end()
	if l.session == s {
		l.session = nil
	}
	for _, one := range s.listeners {
		one.failed <- err
	}
}

// follow connects, and wakes the listeners until ctx ends or the connection fails.
func (l *sharedListener) follow(ctx context.Context, s *listenSession) error {
	connecting, cancel := context.WithTimeout(ctx, connectTimeout)
	conn, err := pgx.ConnectConfig(connecting, l.cfg.Copy())
	cancel()
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	for {
		if err := l.round(ctx, s, conn); err != nil {
			return err
		}
	}
}

// round sends LISTEN for those that have joined, and waits for a notification or for another one to
// join. An outbox that got no wake-up joins again: its LISTEN shows whether the connection is lost.
func (l *sharedListener) round(ctx context.Context, s *listenSession, conn *pgx.Conn) error {
	waiting, interrupt := context.WithCancel(ctx)
	defer interrupt()
	for _, one := range l.joined(s, interrupt) {
		limited, cancel := context.WithTimeout(ctx, listenTimeout)
		// a text without parameters: it is never prepared
		_, err := conn.Exec(limited, "LISTEN "+pgx.Identifier{one.channel}.Sanitize())
		cancel()
		if err != nil {
			return err
		}
		l.wake(s, func(other *listenerOf) bool { return other == one })
	}
	n, err := conn.WaitForNotification(waiting)
	switch {
	case err == nil:
		l.wake(s, func(one *listenerOf) bool { return one.ready && one.channel == n.Channel })
	case waiting.Err() != nil && ctx.Err() == nil && !conn.IsClosed(): // another has joined
		return nil
	}
	return err
}

// joined returns the listeners that wait for their LISTEN. From then on, one that joins calls
// interrupt.
func (l *sharedListener) joined(s *listenSession, interrupt func()) (all []*listenerOf) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.interrupt = interrupt
	for _, one := range s.listeners {
		if !one.ready {
			all = append(all, one)
		}
	}
	return all
}

// wake wakes the listeners for which which returns true. A listener's first wake-up says that it
// listens.
func (l *sharedListener) wake(s *listenSession, which func(one *listenerOf) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range s.listeners {
		if which(one) {
			one.ready = true
			one.wake()
		}
	}
}
