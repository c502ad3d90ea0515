package inbox

import (
	"context"
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

// name is one handler. Its mutex lets one message register it.
type name struct {
	mu     sync.Mutex
	until  time.Time
	warned map[string]bool // the programs that a warning was logged about
}

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
	return in.registerWith(ctx, e, recordTimeout, in.cfg.Store.Register)
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
	if err := a.in.registerWith(ctx, e, time.Second, tell); err != nil {
		one := a.in.names.of(e.Handler)
		one.mu.Lock()
		defer one.mu.Unlock()
		one.until = time.Now().Add(time.Minute)
	}
}

func (in *Inbox) registerWith(ctx context.Context, e Event, limit time.Duration,
	register func(context.Context, Registration) ([]Registration, error),
) error {
	one := in.names.of(e.Handler)
	one.mu.Lock()
	defer one.mu.Unlock()
	if time.Now().Before(one.until) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	mine := Registration{Consumer: e.Consumer, Handler: e.Handler, Program: program.Path(), Topic: e.Topic}
	others, err := register(ctx, mine)
	if err != nil {
		return errtext.Errorf("inbox: register the handler: %w", err)
	}
	one.until = time.Now().Add(registerAgain)
	for _, o := range others {
		if one.warned[o.Program] {
			continue
		}
		one.warned[o.Program] = true
		in.cfg.Logger.Warn("inbox: another program has the same consumer and handler: each event is processed by one "+
			"of the two; give one of them another name", "consumer", e.Consumer, "handler", e.Handler,
			"program", mine.Program, "topic", mine.Topic, "other_program", o.Program, "other_topic", o.Topic)
	}
	return nil
}
