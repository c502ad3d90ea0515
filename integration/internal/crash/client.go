package crash

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// Client is a child's publisher: it sends events to the Ledger and waits for its answer.
type Client struct {
	addr, from string
	idle       chan *line
}

type line struct {
	net.Conn
	in  *json.Decoder
	out *json.Encoder
}

// NewClient returns a publisher for the Ledger at addr. from names the child.
func NewClient(addr, from string) *Client {
	return &Client{addr: addr, from: from, idle: make(chan *line, 64)}
}

// Publish implements core.Publisher.
func (c *Client) Publish(ctx context.Context, d core.Delivery) error {
	m := Message{From: c.from, Cold: isCold(ctx), EventID: d.ID, KeySeq: d.KeySeq}
	if d.KeySeq != 0 {
		m.Key = d.Key
	}
	a, err := c.ask(ctx, m)
	switch {
	case err != nil:
		// It is unknown whether the copy was accepted. The Ledger must know that another copy may
		// follow.
		c.Note("unanswered", 1)
		if ctx.Err() != nil {
			return fmt.Errorf("ledger: %w", ctx.Err())
		}
		return fmt.Errorf("ledger: %w", err)
	case a.Refused == "":
		return nil
	case a.Class == "permanent":
		return core.Permanent(errors.New(a.Refused))
	case a.Class == "unavailable":
		return core.Unavailable(errors.New(a.Refused))
	}
	return core.Transient(errors.New(a.Refused))
}

// Note sends the Ledger a note, which it counts. Errors are ignored, because a living process
// reaches the Ledger.
func (c *Client) Note(note string, n int) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, _ = c.ask(ctx, Message{From: c.from, Note: note, N: n})
}

func (c *Client) ask(ctx context.Context, m Message) (a Answer, err error) {
	l, err := c.line(ctx)
	if err != nil {
		return a, err
	}
	stop := context.AfterFunc(ctx, func() { _ = l.SetDeadline(time.Unix(1, 0)) })
	if err = l.out.Encode(m); err == nil {
		err = l.in.Decode(&a)
	}
	if !stop() || err != nil {
		_ = l.Close()
		return a, err
	}
	select {
	case c.idle <- l:
	default:
		_ = l.Close()
	}
	return a, nil
}

func (c *Client) line(ctx context.Context) (*line, error) {
	select {
	case l := <-c.idle:
		return l, nil
	default:
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return nil, err
	}
	return &line{Conn: conn, in: json.NewDecoder(bufio.NewReader(conn)), out: json.NewEncoder(conn)}, nil
}
