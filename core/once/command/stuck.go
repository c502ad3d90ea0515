package command

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// A handler is stuck if it has not returned half of its time after that time is over: it ignores
// the end of its context. No code can end it, so the Worker goes on without it, before the relay
// does. The relay would take it for a fault of the whole channel, which may have other
// destinations. The effect stays leased, so nobody executes it meanwhile, and its result is
// recorded when the handler returns. Until then the handler counts for its destination's
// PerDestination.

// errStuck is the failure of an effect whose handler is stuck.
var errStuck = errors.New("command: the handler ignores the end of its context: it has not returned")

// mostStuck is how many stuck handlers a Worker goes on without. Each of them costs a goroutine and
// the statements that extend its lease. Of further ones the relay closes the channel.
const mostStuck = 128

// handlerEnd is how a handler ended.
type handlerEnd struct {
	ref      string
	err      error
	panicked *core.PanicError // nil: it returned
}

// call calls the handler in a goroutine of its own.
func call(ctx context.Context, handler Handler, e Effect) <-chan handlerEnd {
	ended := make(chan handlerEnd, 1)
	go func() {
		var end handlerEnd
		returned := false
		defer func() {
			if !returned {
				end.panicked = core.NewPanicError(recover()) // nil after runtime.Goexit
			}
			ended <- end
		}()
		end.ref, end.err = handler(ctx, e)
		returned = true
	}()
	return ended
}

// await waits for the end of a handler. It returns false if the handler is stuck and the Worker can
// go on without it.
func (w *Worker) await(ctx context.Context, run execution, ended <-chan handlerEnd) (end handlerEnd, ok bool) {
	limit, bounded := ctx.Deadline()
	if !bounded {
		return <-ended, true
	}
	left := max(time.Until(limit), 0)
	timer := time.NewTimer(left + left/2)
	defer timer.Stop()
	select {
	case end = <-ended:
		return end, true
	case <-timer.C:
	}
	if !w.away.abandon(run.visit) {
		return <-ended, true
	}
	return end, false
}

// abandon goes on without a stuck handler, and returns after what time its effect may come back.
func (w *Worker) abandon(run execution, ended <-chan handlerEnd,
	finish func(handlerEnd, *error) (string, string, error),
) (wait time.Duration) {
	e := run.effect
	w.cfg.Logger.Error("command: a handler ignores the end of its context: its effect waits until it returns, or this "+
		"process ends", "channel", e.Channel, "destination", run.visit.at.name, "effect_id",
		run.claim.ID, "after", time.Since(run.held).Round(time.Millisecond))
	go func() {
		info := ExecInfo{Tenant: e.Tenant, Channel: e.Channel, Key: e.Key, ID: run.claim.ID, Attempt: run.attempt}
		defer func() {
			if v := recover(); v != nil { // no caller is left for it
				p := core.NewPanicError(v)
				w.cfg.Logger.Error("command: a handler that was given up panicked", "channel",
					e.Channel, "effect_id", info.ID, "error", p, "stack", string(p.Stack))
			}
		}()
		_, info.Result, _ = finish(<-ended, &info.Err)
		info.Duration = time.Since(run.held)
		w.cfg.Observer(info)
	}()
	return destinationMaxGap
}

// shortLease warns once that handlers may run for longer than the lease. While the lease is
// extended, no other process runs the handler. But if the process or the store stops for a while,
// only a handler that ends before its lease is certain to run alone.
type shortLease struct{ once sync.Once }

func (s *shortLease) check(ctx context.Context, lease time.Duration, logger *slog.Logger) {
	end, bounded := ctx.Deadline()
	if !bounded {
		return
	}
	if limit := time.Until(end); limit > lease {
		s.once.Do(func() {
			logger.Warn("command: a handler may run for longer than the lease of its effect: after a pause of the "+
				"process or of the store that is longer than the lease, another worker executes the same effect "+
				"beside it. Make WorkerConfig.Lease longer than PublishTimeout of the outbox and SweepTimeout",
				"limit", limit.Round(time.Millisecond), "lease", lease)
		})
	}
}
