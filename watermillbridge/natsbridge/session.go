package natsbridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ormoutbox/ormoutbox/watermillbridge/internal/link"
)

// session is a connection. The client reopens a broken one, and gives it up when the server refuses
// its credentials again and again: then there is a new session. So there is after a publish that
// got no answer, because the server may have lost the subscription to the answers, or hang.
type session struct {
	conn *nats.Conn
	js   jetstream.JetStream
	log  *slog.Logger

	mu     sync.Mutex
	failed error               // why the connection broke, or was not made anew
	topics map[string]*waiting // topics with waiting publishes
	silent string              // the server that did not answer: the session is not used any more
}

// waiting are the publishes to a topic that wait for an answer.
type waiting struct {
	waits   map[*wait]struct{}
	answers int // to publishes that have ended
}

// wait is a publish that waits for an answer.
type wait struct {
	topic  string
	before int             // answers to others when it began
	asks   bool            // for the stream of the topic
	ctx    context.Context //nolint:containedctx // it is the publish's
	end    context.CancelCauseFunc
}

// newLink returns a connection with options.
func newLink(log *slog.Logger, options *nats.Options) link.Link[*session] {
	return link.Link[*session]{
		Bridge: "natsbridge", Address: addresses(options.Servers...), Logger: log,
		Dial:   func() (*session, error) { return connect(log, *options) },
		Broken: (*session).unusable,
		HangUp: func(s *session) error { s.conn.Close(); return nil },
	}
}

// addresses are the hosts of servers. A user is left out too: without a password, it is a token.
func addresses(servers ...string) string {
	var all []string
	for _, server := range servers {
		if u, err := url.Parse(server); err == nil {
			all = append(all, u.Host)
		}
	}
	return strings.Join(all, ",")
}

func connect(log *slog.Logger, o nats.Options) (*session, error) {
	s := &session{log: log, topics: map[string]*waiting{}}
	if o.CustomDialer == nil {
		dialer := &net.Dialer{Timeout: o.Timeout}
		if o.Dialer != nil {
			dialer = o.Dialer
		}
		o.CustomDialer = &link.Wire{Dialer: dialer.Dial}
	}
	broke, failed, problem := o.DisconnectedErrCB, o.ReconnectErrCB, o.AsyncErrorCB
	o.DisconnectedErrCB = func(conn *nats.Conn, err error) {
		s.broken(err)
		if broke != nil {
			broke(conn, err)
		}
	}
	o.ReconnectErrCB = func(conn *nats.Conn, err error) {
		s.mu.Lock()
		s.failed = err
		s.mu.Unlock()
		if failed != nil {
			failed(conn, err)
		}
	}
	o.AsyncErrorCB = func(conn *nats.Conn, sub *nats.Subscription, err error) {
		s.refused(err)
		if problem != nil {
			problem(conn, sub, err)
		}
	}
	var err error
	if s.conn, err = o.Connect(); err != nil {
		return nil, err
	}
	if s.js, err = jetstream.New(s.conn); err != nil {
		s.conn.Close()
		return nil, err
	}
	return s, nil
}

// unusable reports whether there has to be another session.
func (s *session) unusable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent != "" || s.conn.IsClosed()
}

// begin returns a context for a publish to topic. It ends early, with a cause, when the connection
// breaks or the server refuses the right to publish, with a message of its own.
func (s *session) begin(ctx context.Context, topic string) (bound context.Context, w *wait) {
	bound, end := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[topic]
	if t == nil {
		t = &waiting{waits: map[*wait]struct{}{}}
		s.topics[topic] = t
	}
	w = &wait{topic: topic, before: t.answers, asks: true, ctx: ctx, end: end}
	t.waits[w] = struct{}{}
	return bound, w
}

// knows records that a publish has the stream of its topic, so that it is not asked for again.
func (s *session) knows(w *wait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.asks = false
}

// end ends a publish with its result. If its time is over and the server has answered to no other of
// the topic meanwhile, the others of the topic end too, and the session with its last publish. The
// next publish connects.
func (s *session) end(w *wait, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.end(nil)
	t := s.topics[w.topic]
	delete(t.waits, w)
	if len(t.waits) == 0 {
		delete(s.topics, w.topic)
	}
	switch _, refused := errors.AsType[*jetstream.APIError](err); {
	case err == nil, refused: // other errors are the client's own
		t.answers++
	case errors.Is(w.ctx.Err(), context.DeadlineExceeded) && t.answers == w.before && s.silent == "" &&
		s.conn.IsConnected():
		s.silent = s.server()
		s.log.Warn("natsbridge: the server does not answer; another connection is opened", "server", s.silent,
			"subject", w.topic)
		for other := range t.waits {
			other.end(fmt.Errorf("%w: %s does not answer", ErrDisconnected, s.silent))
		}
	}
	if s.silent != "" && len(s.topics) == 0 {
		go s.conn.Close()
	}
}

// server is the host of the connection.
func (s *session) server() string { return addresses(s.conn.ConnectedUrlRedacted()) }

// waitsFor returns what a publish waits for, or nil if it waits for a connection.
func (s *session) waitsFor() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent != "" {
		return fmt.Errorf("natsbridge: publish to %s: no answer; another connection is opened", s.silent)
	}
	if s.conn.IsConnected() {
		return fmt.Errorf("natsbridge: publish to %s: no answer yet", s.server())
	}
	return nil
}

// lost returns why there is no connection, or else err. The client has no callback for TLS and
// rights that fail when it connects again.
func (s *session) lost(err error) error {
	last := s.conn.LastError()
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(last, s.failed, err)
}

// broken ends the publishes that wait for an acknowledgement.
func (s *session) broken(why error) {
	if why != nil {
		s.log.Warn("natsbridge: the connection broke; it is opened again", "error", why)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = why
	for _, t := range s.topics {
		for w := range t.waits {
			w.end(ErrDisconnected)
		}
	}
}

// publishTo finds the subject in the refusal of a publish. Every other refusal is of the
// subscription to the answers.
var publishTo = regexp.MustCompile(`for Publish to "([^"]*)"`)

// refused ends the publishes that a refusal of the server is about. What is asked of JetStream may be
// asked for any of them.
func (s *session) refused(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	found := publishTo.FindStringSubmatch(err.Error())
	s.mu.Lock()
	defer s.mu.Unlock()
	asking := found != nil && strings.HasPrefix(found[1], "$JS.API.")
	for topic, t := range s.topics {
		for w := range t.waits {
			if found == nil || found[1] == topic || asking && w.asks {
				w.end(fmt.Errorf("natsbridge: %w", err))
			}
		}
	}
}
