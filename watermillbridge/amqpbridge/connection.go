package amqpbridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/internal/link"
)

// connection is a connection with its channels and declared topics. It is replaced as a whole when
// it breaks.
type connection struct {
	conn  *amqp091.Connection
	slots chan struct{} // held by channels in use; its capacity is Config.Channels

	declared sync.Map // topics

	mu      sync.Mutex
	idle    []*channel
	blocked string             // the broker's reason; empty if it takes messages
	alarm   chan struct{}      // closed while blocked
	unheard map[string]*answer // by row; to messages that were given up because of an alarm
}

// channel is a channel in confirm mode. One message at a time is published on it, so every answer
// is about that message.
type channel struct {
	*amqp091.Channel
	returns chan amqp091.Return // capacity 1: the broker sends it before the confirm
	closes  chan *amqp091.Error // capacity 1
}

// heartbeat is the default. A broker that disappears is noticed after three.
const heartbeat = 10 * time.Second

func connect(cfg *Config) (*connection, error) {
	ac := amqp091.Config{Locale: "en_US"}
	if cfg.AMQP.Connection.AmqpConfig != nil {
		ac = *cfg.AMQP.Connection.AmqpConfig
	}
	if cfg.AMQP.Connection.TLSConfig != nil {
		ac.TLSClientConfig = cfg.AMQP.Connection.TLSConfig
	}
	ac.Heartbeat = cmp.Or(ac.Heartbeat, heartbeat)
	if ac.Dial == nil {
		ac.Dial = amqp091.DefaultDial(cfg.ConnectTimeout)
	}
	if ac.Properties == nil {
		ac.Properties = amqp091.NewConnectionProperties()
		ac.Properties.SetClientConnectionName("ormoutbox")
	}
	wire, server := link.Wire{Dialer: ac.Dial}, "" // the server of several that has answered
	ac.Dial = func(network, address string) (net.Conn, error) {
		conn, err := wire.Dial(network, address)
		if err == nil {
			server = conn.RemoteAddr().String() + ": "
		}
		return conn, err
	}
	conn, err := amqp091.DialConfig(cfg.AMQP.Connection.AmqpURI, ac)
	if err != nil {
		return nil, fmt.Errorf("%s%w", server, mayWantTLS(cfg.AMQP.Connection.AmqpURI, err))
	}
	c := &connection{conn: conn, slots: make(chan struct{}, cfg.Channels), alarm: make(chan struct{})}
	go c.watch(conn.NotifyBlocked(make(chan amqp091.Blocking, 1)))
	return c, nil
}

// close closes the connection, within timeout.
func (c *connection) close(timeout time.Duration) error {
	err := c.conn.CloseDeadline(time.Now().Add(timeout))
	if errors.Is(err, amqp091.ErrClosed) {
		return nil
	}
	return err
}

// mayWantTLS adds a possible cause to an error of a connection without TLS. A closed connection is
// recognised by the error's text, the only thing that the client keeps.
func mayWantTLS(uri string, err error) error {
	closed := strings.Contains(err.Error(), "EOF") || strings.Contains(err.Error(), syscall.ECONNRESET.Error())
	if closed && strings.HasPrefix(uri, "amqp:") {
		return fmt.Errorf("%w: the server closed the connection; it may want TLS (amqps)", err)
	}
	return err
}

// watch follows connection.blocked until the connection ends. A broker in an alarm notifies a new
// connection after its first message.
func (c *connection) watch(notes <-chan amqp091.Blocking) {
	for b := range notes {
		c.mu.Lock()
		switch {
		case b.Active && c.blocked == "":
			c.blocked = "reason: " + b.Reason
			close(c.alarm)
		case !b.Active && c.blocked != "":
			c.blocked, c.alarm = "", make(chan struct{})
		}
		c.mu.Unlock()
	}
}

// whileBlocked returns ErrBlocked if the broker has blocked the connection, and a channel that is
// closed when it does.
func (c *connection) whileBlocked() (alarm <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocked != "" {
		err = core.Unavailable(fmt.Errorf("%w, %s", ErrBlocked, c.blocked))
	}
	return c.alarm, err
}

// lateAnswer is how long a broker may still answer messages that were sent before an alarm.
const lateAnswer = time.Second

// answer is the broker's answer to a message, once done is closed.
type answer struct {
	done chan struct{}
	err  error
}

// maxUnheard bounds how many answers are kept for the next publish of their rows.
const maxUnheard = 1024

// unlessBlocked returns the result of send, or ErrBlocked if the broker does not answer because of
// an alarm. send then goes on until the broker answers or the connection ends. The broker confirms
// after an alarm what it got before it, so the next call for the same row gets that answer instead
// of sending a copy. row may be empty.
func (c *connection) unlessBlocked(row string, send func() error) error {
	alarm, err := c.whileBlocked()
	if err != nil { // the broker does not read from this connection
		return err
	}
	a := c.takeUnheard(row)
	if a == nil {
		a = begin(send)
	}
	for {
		select {
		case <-a.done:
			return a.err
		case <-alarm:
		}
		select {
		case <-a.done:
			return a.err
		case <-time.After(lateAnswer):
		}
		if alarm, err = c.whileBlocked(); err != nil {
			c.leaveUnheard(row, a)
			return err
		}
	}
}

// begin calls send in a goroutine of its own.
func begin(send func() error) *answer {
	a := &answer{done: make(chan struct{})}
	go func() {
		a.err = fmt.Errorf("%w: it ended its goroutine", watermillbridge.ErrPanic)
		defer func() {
			if v := recover(); v != nil { // a topology builder is code of the caller
				a.err = fmt.Errorf("%w: %v", watermillbridge.ErrPanic, v)
			}
			close(a.done)
		}()
		a.err = send()
	}()
	return a
}

// leaveUnheard keeps the answer to a message that nobody waits for any more.
func (c *connection) leaveUnheard(row string, a *answer) {
	if row == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unheard == nil || len(c.unheard) >= maxUnheard { // without it, a message may have a copy
		c.unheard = map[string]*answer{}
	}
	c.unheard[row] = a
}

// takeUnheard returns the answer that was kept for a row, unless it is a failure.
func (c *connection) takeUnheard(row string) *answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.unheard[row]
	delete(c.unheard, row)
	if a == nil {
		return nil
	}
	select {
	case <-a.done:
		if a.err != nil {
			return nil
		}
	default:
	}
	return a
}

// acquire waits until ctx ends for a free channel.
func (c *connection) acquire(ctx context.Context) (*channel, error) {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("amqpbridge: no channel became free: %w", ctx.Err())
	}
	ch, err := c.channel()
	if err != nil {
		<-c.slots
		return nil, err
	}
	return ch, nil
}

func (c *connection) channel() (*channel, error) {
	c.mu.Lock()
	for n := len(c.idle); n > 0; n = len(c.idle) {
		ch := c.idle[n-1]
		c.idle = c.idle[:n-1]
		if !ch.IsClosed() {
			c.mu.Unlock()
			return ch, nil
		}
	}
	c.mu.Unlock()

	raw, err := c.conn.Channel()
	if err != nil {
		return nil, marked("open a channel", err)
	}
	if err := raw.Confirm(false); err != nil {
		_ = raw.Close()
		return nil, marked("switch a channel to confirms", err)
	}
	return &channel{
		Channel: raw,
		returns: raw.NotifyReturn(make(chan amqp091.Return, 1)),
		closes:  raw.NotifyClose(make(chan *amqp091.Error, 1)),
	}, nil
}

// release gives a channel back. A closed channel is forgotten.
func (c *connection) release(ch *channel) {
	select {
	case <-ch.returns: // the return was not read: the message was refused as well
	default:
	}
	if !ch.IsClosed() {
		c.mu.Lock()
		c.idle = append(c.idle, ch)
		c.mu.Unlock()
	}
	<-c.slots
}
