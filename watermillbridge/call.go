package watermillbridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
)

// States of a call. The side that leaves callRunning first decides who gets the result.
const (
	callRunning int32 = iota
	callReturned
	callLeft // its caller has left
)

// call is one call of the Watermill publisher. It has a goroutine of its own, so that the caller
// can stop waiting. A call whose caller stayed is used again. A call whose caller left belongs to
// its goroutine.
type call struct {
	p     *Publisher
	state atomic.Int32
	done  chan struct{} // capacity 1
	err   error

	late    func(receipt string, err error) // may be nil
	topic   *topic
	msg     *message.Message
	eventID string
	rowID   core.RowID
	began   time.Time
}

func (p *Publisher) call(ctx context.Context, t *topic, d core.Delivery, msg *message.Message,
	late func(receipt string, err error),
) error {
	c, began := p.pool.Get().(*call), time.Now()
	c.state.Store(callRunning)
	c.late, c.topic, c.msg, c.eventID, c.rowID, c.began = late, t, msg, d.ID, d.RowID, began
	go c.run()

	select {
	case <-c.done:
	case <-ctx.Done():
		if c.state.CompareAndSwap(callRunning, callLeft) {
			p.addStuck(t, 1)
			return p.classified(t, began, fmt.Errorf("%w: topic %q: %w", ErrNoAnswer, t.name, ended(ctx)))
		}
		<-c.done // it returned at the same moment, and its answer counts
	}
	err := c.err
	c.late, c.topic, c.msg, c.err = nil, nil, nil, nil
	p.pool.Put(c)
	if err != nil {
		err = p.classified(t, began, err)
	}
	return err
}

func (c *call) run() {
	returned := false
	defer func() {
		if !returned {
			c.panicked(recover())
		}
		c.finish()
	}()
	c.err = c.p.pub.Publish(c.topic.name, c.msg)
	returned = true
}

// panicked notes a panic. A nil v means that runtime.Goexit ended the goroutine.
func (c *call) panicked(v any) {
	if v == nil {
		v = "it ended its goroutine"
	}
	c.err = fmt.Errorf("%w: %v", ErrPanic, v)
	c.p.cfg.Logger.Error("watermillbridge: publisher panicked", "destination", c.topic.name, "event_id", c.eventID,
		"row_id", c.rowID.String(), "error", c.err, "stack", string(debug.Stack()))
}

func (c *call) finish() {
	p := c.p
	if c.state.CompareAndSwap(callRunning, callReturned) {
		p.leave(c.topic, c.err == nil)
		c.done <- struct{}{} // c belongs to the caller from here on
		return
	}
	defer p.leave(c.topic, c.err == nil)
	p.addStuck(c.topic, -1)
	level := slog.LevelDebug // a failure: the caller has reported that there was no answer in time
	receipt := ""
	if c.err == nil {
		level = slog.LevelInfo
		receipt = p.receipt(c.topic.name, c.eventID, c.rowID, c.msg)
	}
	p.cfg.Logger.Log(context.Background(), level, "watermillbridge: publisher answered after its caller had left",
		"destination", c.topic.name, "event_id", c.eventID, "error", c.err, "after", time.Since(c.began))
	if c.late != nil {
		c.late(receipt, c.err)
	}
}

// ended returns the reason why ctx ended. It always wraps ctx.Err, so that a relay recognises a
// timeout.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
