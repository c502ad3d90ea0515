package natsbridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge/internal/link"
)

// Errors that callers branch on with errors.Is.
var (
	// ErrNoStream: no stream has the topic as a subject. Its class is Unavailable: events wait
	// until there is one. The error names the command that makes it.
	ErrNoStream = errors.New("natsbridge: no stream has the subject")

	// ErrUnsafeStream: the stream of a topic loses messages that it has acknowledged. Its class is
	// Unavailable. The error names each setting with the remedy. See Config.AllowUnsafeStream.
	ErrUnsafeStream = errors.New("natsbridge: unsafe stream")
)

// stream is the stream of a topic.
type stream struct {
	name       string
	maxMessage int // bytes; 0: only the server's limit
	asked      time.Time
}

// checkEvery is how often the settings of a stream or a consumer are read again, which may change
// while it is in use.
const checkEvery = time.Minute

// maxStreams is how many subjects are remembered with their streams.
const maxStreams = 10_000

// known returns the stream of a topic if the server was asked lately. Otherwise the first caller
// asks again, and the others go on with the previous answer.
func (p *publisher) known(topic string, now time.Time) (stream, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.streams[topic]
	if !ok {
		return s, false
	}
	if now.Sub(s.asked) < checkEvery {
		return s, true
	}
	again := s
	again.asked = now
	p.streams[topic] = again
	return s, false
}

// streamOf asks the server for the stream of a topic.
func (p *publisher) streamOf(ctx context.Context, js jetstream.JetStream, topic string) (stream, error) {
	if p.cfg.Stream != nil {
		name := p.cfg.Stream(topic)
		if name == "" {
			return stream{}, core.Unavailable(fmt.Errorf("%w %q: Config.Stream returned none", ErrNoStream, topic))
		}
		return stream{name: name}, nil
	}
	if s, ok := p.known(topic, time.Now()); ok {
		return s, nil
	}
	s, err := findStream(ctx, js, topic, p.cfg.AllowUnsafeStream)
	if err != nil {
		p.forget(topic)
		return s, err
	}
	s.asked = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.streams) >= maxStreams { // subjects may be many and short-lived
		clear(p.streams)
	}
	p.streams[topic] = s
	return s, nil
}

// forget has the stream of a topic looked up again.
func (p *publisher) forget(topic string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.streams, topic)
}

func findStream(ctx context.Context, js jetstream.JetStream, topic string, allowUnsafe bool) (stream, error) {
	name, err := js.StreamNameBySubject(ctx, topic)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return stream{}, core.Unavailable(fmt.Errorf("%w %q: create one: %s", ErrNoStream, topic, createCommand(topic)))
	}
	if err != nil {
		return stream{}, asked(topic, err)
	}
	found, err := js.Stream(ctx, name)
	if err != nil {
		return stream{}, asked(topic, err)
	}
	cfg := found.CachedInfo().Config
	if err := errors.Join(unsafeStream(&cfg)...); err != nil && !allowUnsafe {
		return stream{}, core.Unavailable(fmt.Errorf("%w %q of topic %q: %w", ErrUnsafeStream, name, topic, err))
	}
	return stream{name: name, maxMessage: max(int(cfg.MaxMsgSize), 0)}, nil
}

// asked explains an error of a question to the server.
func asked(topic string, err error) error {
	return marked(fmt.Errorf("natsbridge: ask for the stream of subject %q (set Stream if the user has no right to "+
		"ask): %w", topic, err))
}

// createCommand is the command of NATS that makes a stream for a topic.
func createCommand(topic string) string {
	subject, _, nested := strings.Cut(topic, ".")
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, strings.ToUpper(subject))
	if nested {
		subject += ".>"
	}
	subject = strings.ReplaceAll(subject, "'", `'\''`) // a person may copy the command into a shell
	return fmt.Sprintf("nats stream add %s --subjects '%s' --storage file --retention limits --discard new "+
		"--replicas 3 --defaults (--replicas 1 on a single server)", name, subject)
}

// unsafeStream returns every problem of a stream.
func unsafeStream(c *jetstream.StreamConfig) (problems link.Problems) {
	refuse := problems.Add
	refuse(c.NoAck, "it does not acknowledge: set no_ack to false")
	refuse(c.Storage == jetstream.MemoryStorage, "it is in memory, so a restart of its servers loses all messages: "+
		"make it anew with --storage file")
	refuse(c.Retention == jetstream.InterestPolicy, "its retention is interest, so it drops messages while no "+
		"consumer exists: make it anew with --retention limits")
	refuse(c.Sealed, "it is sealed and takes no message: make another one")
	return problems
}

// Check connects with cfg and returns an error unless each topic has a stream that keeps its
// messages. Call it when a process starts, if it should not start without its streams; a Publisher
// checks the same before the first event of a topic. The error names the problem of every topic.
func Check(ctx context.Context, cfg Config, topics ...string) error {
	o, err := cfg.validate()
	if err != nil {
		return err
	}
	l := newLink(cfg.Bridge.Logger, o)
	s, err := l.Connected(ctx)
	if err != nil {
		return err
	}
	defer s.conn.Close()
	var problems []error
	for _, topic := range topics {
		if err := checkSubject(topic); err != nil {
			problems = append(problems, err)
			continue
		}
		if _, err := findStream(ctx, s.js, topic, cfg.AllowUnsafeStream); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// checkSubject refuses a topic that is no subject to publish to.
func checkSubject(topic string) error {
	if topic == "" || strings.ContainsAny(topic, " \t\r\n*>") || strings.HasPrefix(topic, ".") ||
		strings.HasSuffix(topic, ".") || strings.Contains(topic, "..") || strings.HasPrefix(topic, "$") {
		return core.Permanent(fmt.Errorf("natsbridge: topic %.100q is no subject: it has a blank, a wildcard or an "+
			"empty part, or begins with $", topic))
	}
	return nil
}
