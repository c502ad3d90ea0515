package cli

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// sharedListener listens for the commits of all outboxes of a database, on one connection.
type sharedListener struct {
	cfg *pgx.ConnConfig

	mu      sync.Mutex
	session *listenSession // nil: nobody listens
}

// listenSession is a connection that listens, from its first listener to its last or to an error.
type listenSession struct {
	listeners []*listenerOf // guarded by sharedListener.mu
	joined    chan struct{} // a listener has joined
	end       context.CancelFunc
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
		s = &listenSession{joined: make(chan struct{}, 1)}
		ctx, s.end = context.WithCancel(context.WithoutCancel(ctx)) // others may join it
		l.session = s
		go l.run(ctx, s)
	}
	s.listeners = append(s.listeners, one)
	select {
	case s.joined <- struct{}{}:
	default:
	}
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
	listening := map[string]bool{}
	for {
		for _, channel := range l.channels(s) {
			if !listening[channel] { // a text without parameters: it is never prepared
				if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
					return err
				}
				listening[channel] = true
			}
		}
		l.wake(s, func(one *listenerOf) bool { return !one.ready && listening[one.channel] })
		n, err := s.next(ctx, conn)
		if err != nil {
			return err
		}
		if n != nil {
			l.wake(s, func(one *listenerOf) bool { return one.ready && one.channel == n.Channel })
		}
	}
}

// channels returns the channels of the listeners.
func (l *sharedListener) channels(s *listenSession) (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range s.listeners {
		all = append(all, one.channel)
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

// next returns the next notification, or nil if a listener has joined.
func (s *listenSession) next(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	interrupted := make(chan bool, 1)
	go func() {
		select {
		case <-s.joined:
			cancel() // the connection stays open
			interrupted <- true
		case <-waiting.Done():
			interrupted <- false
		}
	}()
	n, err := conn.WaitForNotification(waiting)
	cancel()
	if <-interrupted && err != nil && ctx.Err() == nil && !conn.IsClosed() {
		return nil, nil // the wait was interrupted, and has not failed
	}
	return n, err
}
