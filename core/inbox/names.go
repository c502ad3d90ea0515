package inbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/program"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// registerAgain is how long a registration is good for.
const registerAgain = 12 * time.Hour

// names has the handlers that this process has registered. The zero value is ready for use.
type names struct {
	mu    sync.Mutex
	known map[string]*name
}

// name is one handler. One message registers it, and the others wait for that.
type name struct {
	mu         sync.Mutex
	flight     *flight         // the call under way; nil: there is none
	until      time.Time       // no call is needed before
	registered bool            // a call has succeeded
	warned     map[string]bool // the programs that a warning was logged about
}

// flight is one call of Store.Register, for all messages that wait for it.
type flight struct {
	done chan struct{}
	err  error // set when done is closed
}

// errAlone: the call has ended with its message, and says nothing to the others.
var errAlone = errors.New("inbox: the message that registers the handler has ended")

func (n *names) of(handler string) *name {
	n.mu.Lock()
	defer n.mu.Unlock()
	one := n.known[handler]
	if one == nil {
		one = &name{warned: map[string]bool{}}
		if n.known == nil {
			n.known = map[string]*name{}
		}
		n.known[handler] = one
	}
	return one
}

// register registers the handler of an event before its first transaction. In that transaction it
// would hold up the other messages of a new handler until the end.
func (in *Inbox) register(ctx context.Context, e Event) error {
	return in.registerWith(ctx, e, recordTimeout, 0, in.cfg.Store.Register)
}

// register tells the store of the leases whose handler it is. It is only for the warning: a store
// that fails is asked again later, and says so when a lease is acquired.
func (a *AtLeastOnce) register(ctx context.Context, e Event) {
	scope := once.Scope("inbox", e.Consumer, e.Handler)
	tell := func(ctx context.Context, mine Registration) (others []Registration, err error) {
		programs, err := a.runner.Register(ctx, scope, mine.Program)
		for _, p := range programs {
			others = append(others, Registration{Consumer: e.Consumer, Handler: e.Handler, Program: p})
		}
		return others, err
	}
	_ = a.in.registerWith(ctx, e, time.Second, time.Minute, tell)
}

// registerWith registers the handler of an event unless that was done not long ago. A call takes at
// most limit. After an error the next call comes when pause is over. A handler that is registered
// already stays so when that cannot be renewed.
func (in *Inbox) registerWith(ctx context.Context, e Event, limit, pause time.Duration,
	register func(context.Context, Registration) ([]Registration, error),
) error {
	one := in.names.of(e.Handler)
	own, err := one.take(ctx)
	if own == nil {
		return err
	}
	mine := Registration{Consumer: e.Consumer, Handler: e.Handler, Program: program.Path(), Topic: e.Topic}
	var others []Registration
	answered := false
	defer func() {
		one.mu.Lock()
		defer one.mu.Unlock()
		switch {
		case err == nil && answered:
			own.err, one.registered, one.until = nil, true, time.Now().Add(registerAgain)
			in.warnOfOthers(one, mine, others)
		case ctx.Err() == nil && answered:
			own.err, one.until = err, time.Now().Add(pause)
			if one.registered { // it cannot be renewed now
				own.err = nil
			}
		}
		one.flight = nil
		close(own.done)
	}()
	call, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	others, err = register(call, mine)
	answered = true
	if err != nil {
		err = errtext.Errorf("inbox: register the handler: %w", err)
		if one.registered && ctx.Err() == nil {
			return nil
		}
	}
	return err
}

// take returns the call that the caller has to make, or nil if there is none to be made: then err is
// what another call has said.
func (one *name) take(ctx context.Context) (own *flight, err error) {
	for {
		one.mu.Lock()
		other := one.flight
		if time.Now().Before(one.until) {
			one.mu.Unlock()
			return nil, nil
		}
		if other == nil {
			own = &flight{done: make(chan struct{}), err: errAlone}
			one.flight = own
			one.mu.Unlock()
			return own, nil
		}
		one.mu.Unlock()
		select {
		case <-other.done:
			if !errors.Is(other.err, errAlone) {
				return nil, other.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// warnOfOthers tells of other programs under the same name, each once.
func (in *Inbox) warnOfOthers(one *name, mine Registration, others []Registration) {
	for _, o := range others {
		if one.warned[o.Program] {
			continue
		}
		one.warned[o.Program] = true
		in.cfg.Logger.Warn("inbox: another program has the same consumer and handler: each event is processed by one "+
			"of the two; give one of them another name", "consumer", mine.Consumer, "handler", mine.Handler,
			"program", mine.Program, "topic", mine.Topic, "other_program", o.Program, "other_topic", o.Topic)
	}
}
