package relay

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/pace"
)

// drain publishes due events until none is left.
func (r *engine) drain(ctx context.Context) error {
	r.do(func(s *state) { s.poller.drains++ })
	defer r.do(func(s *state) { s.poller.drains-- })
	for {
		res, err := r.round(ctx, &idleKinds{})
		if err != nil {
			return errtext.Errorf("outbox: drain: %w", err)
		}
		if res == (roundResult{}) && ask(r, (*state).isIdle) {
			at := ask(r, (*state).slowLook)
			if at.IsZero() {
				break
			}
			if !pace.Sleep(ctx, time.Until(at)) {
				return errtext.Errorf("outbox: drain: %w", ctx.Err())
			}
			continue
		}
		if ask(r, (*state).standsStill) {
			return fmt.Errorf("%w: every publish of this process is stuck", core.ErrStopped)
		}
		select {
		case <-r.idle():
		case <-ctx.Done():
			return errtext.Errorf("outbox: drain: %w", ctx.Err())
		}
		if at := ask(r, (*state).nextFirstLook); !at.IsZero() && !pace.Sleep(ctx, time.Until(at)) {
			return errtext.Errorf("outbox: drain: %w", ctx.Err())
		}
	}
	if topics := ask(r, func(s *state) []string { return s.dests.stoppedTopics() }); len(topics) > 0 {
		return fmt.Errorf("%w: %s", core.ErrStopped, strings.Join(topics, ", "))
	}
	return nil
}

// idle returns a channel that is closed when no item is held any more, except for items of open
// transactions.
func (r *engine) idle() <-chan struct{} {
	return ask(r, func(s *state) <-chan struct{} { return s.inflight.idleChan() })
}

// nextFirstLook returns when the next lane wants its first look. Zero: none does.
func (s *state) nextFirstLook() time.Time {
	at, _ := s.wakes.nextFirstLook()
	return at
}
