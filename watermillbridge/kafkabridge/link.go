package kafkabridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// link is a producer of Sarama that connects on the first use.
type link struct {
	config kafka.PublisherConfig
	logger watermill.LoggerAdapter

	mu      sync.Mutex
	pub     message.Publisher // nil: not connected
	opening *attempt          // nil: nobody connects
	failed  error             // why the last attempt failed
	closed  bool
}

// attempt is one attempt to connect. All who need the link meanwhile get its outcome.
type attempt struct {
	done chan struct{}
	pub  message.Publisher
	err  error
}

// connected returns the producer. It waits until ctx ends for an attempt to connect.
func (l *link) connected(ctx context.Context) (message.Publisher, error) {
	l.mu.Lock()
	if l.closed || l.pub != nil {
		defer l.mu.Unlock()
		return l.pub, l.whileClosed()
	}
	a, failed := l.opening, l.failed
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		l.opening = a
		go l.open(a)
	}
	l.mu.Unlock()
	select {
	case <-a.done:
		return a.pub, a.err
	case <-ctx.Done():
	}
	if failed != nil {
		return nil, core.Unavailable(fmt.Errorf("%w; the attempt before: %w", ctx.Err(), failed))
	}
	return nil, core.Unavailable(fmt.Errorf("kafkabridge: connect: %w", ctx.Err()))
}

func (l *link) open(a *attempt) {
	pub, err := kafka.NewPublisher(l.config, l.logger)
	if err != nil {
		err = l.explain(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	defer close(a.done)
	l.opening, l.failed = nil, nil
	switch {
	case err != nil:
		l.failed = fmt.Errorf("kafkabridge: connect: %w", err)
		a.err = core.Unavailable(l.failed)
	case l.closed:
		_ = pub.Close()
		a.err = l.whileClosed()
	default:
		l.pub, a.pub = pub, pub
	}
}

func (l *link) whileClosed() error {
	if l.closed {
		return core.Unavailable(watermillbridge.ErrClosed)
	}
	return nil
}

// close closes the producer. Later calls of connected fail with watermillbridge.ErrClosed.
func (l *link) close() error {
	l.mu.Lock()
	pub := l.pub
	l.closed, l.pub = true, nil
	l.mu.Unlock()
	if pub == nil {
		return nil
	}
	return pub.Close()
}

// explain adds the cause to an error of a connection. Sarama keeps most answers of a broker to
// itself, such as that it has no such mechanism of SASL. They come with a connection of our own.
func (l *link) explain(err error) error {
	settings := l.config.OverwriteSaramaConfig
	if strings.HasSuffix(err.Error(), sarama.ErrOutOfBrokers.Error()) {
		for _, address := range l.config.Brokers {
			b := sarama.NewBroker(address)
			if b.Open(settings) != nil {
				continue
			}
			_, cause := b.Connected() // waits for it
			_ = b.Close()
			if cause != nil {
				err = fmt.Errorf("%w: %s: %w", err, address, cause)
				break
			}
		}
	}
	closed := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
	if closed && !settings.Net.TLS.Enable {
		return fmt.Errorf("%w: the server closed the connection; it may want TLS", err)
	}
	return err
}
