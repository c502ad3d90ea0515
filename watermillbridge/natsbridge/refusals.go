package natsbridge

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/nats-io/nats.go"
)

// wait is a publish that waits for an answer. The server refuses a right with a message of its own,
// and answers nothing.
type wait struct {
	topic string
	end   context.CancelCauseFunc
}

// begin returns a context for a publish to topic. It ends early, with a cause, when the connection
// breaks or the server refuses the right to publish.
func (p *publisher) begin(ctx context.Context, topic string) (bound context.Context, done func()) {
	bound, cancel := context.WithCancelCause(ctx)
	w := &wait{topic, cancel}
	p.mu.Lock()
	p.waits[w] = struct{}{}
	life := p.life
	p.mu.Unlock()
	stop := context.AfterFunc(life, func() { cancel(ErrDisconnected) })
	return bound, func() {
		stop()
		p.mu.Lock()
		delete(p.waits, w)
		p.mu.Unlock()
		cancel(nil)
	}
}

// publishTo finds the subject in the refusal of a publish. Every other refusal is of the
// subscription to the answers.
var publishTo = regexp.MustCompile(`for Publish to "([^"]*)"`)

// refused ends the publishes that a refusal of the server is about.
func (p *publisher) refused(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	found := publishTo.FindStringSubmatch(err.Error())
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.waits {
		if found != nil && found[1] != w.topic {
			_, known := p.streams[w.topic]
			if known || !strings.HasPrefix(found[1], "$JS.API.") {
				continue
			}
		}
		w.end(fmt.Errorf("natsbridge: %w", err))
	}
}
