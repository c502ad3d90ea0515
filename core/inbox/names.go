package inbox

import (
	"context"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/program"
	"github.com/ormoutbox/ormoutbox/core/internal/turns"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// registerAgain is how long a registration is good for.
const registerAgain = 12 * time.Hour

// names has the handlers that this process has registered. One message registers a handler, and the
// others wait for that. The zero value is ready for use.
type names struct {
	turns turns.Turns[string, registered]

	mu     sync.Mutex
	until  map[string]time.Time // when to register a handler again
	warned map[string]bool      // the other programs that a warning was logged about
}

// registered is the end of a call of [Store.Register], for all messages that wait for it.
type registered struct{ err error }

// known reports whether the handler was registered, and whether that was not long ago.
func (n *names) known(handler string) (ever, good bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	until, ever := n.until[handler]
	return ever, time.Now().Before(until)
}

// register registers the handler of an event before its first transaction. In that transaction it
// would hold up the other messages of a new handler until the end. A handler that is registered
// already stays so when that cannot be renewed.
func (in *Inbox) register(ctx context.Context, e Event) error {
	if _, good := in.names.known(e.Handler); good {
		return nil
	}
	leave, said, err := in.names.turns.Enter(ctx, e.Handler, nil)
	if err != nil {
		return err
	}
	if said != nil {
		return said.err
	}
	defer func() { leave(said) }() // nil: the call ended with its message; the other callers try
	ever, good := in.names.known(e.Handler)
	if good {
		return nil
	}
	call, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	mine := Registration{Consumer: e.Consumer, Handler: e.Handler, Program: program.Path(), Topic: e.Topic}
	others, err := in.cfg.Store.Register(call, mine)
	switch {
	case err == nil:
		in.registered(mine, others)
	case ctx.Err() == nil && ever:
		err = nil
	case err != nil:
		err = errtext.Errorf("inbox: register the handler: %w", err)
	}
	if err == nil || ctx.Err() == nil {
		said = &registered{err}
	}
	return err
}

// registered records a registration, and warns once of each other program under the same name.
func (in *Inbox) registered(mine Registration, others []Registration) {
	n := &in.names
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.until == nil {
		n.until, n.warned = map[string]time.Time{}, map[string]bool{}
	}
	n.until[mine.Handler] = time.Now().Add(registerAgain)
	for _, o := range others {
		if about := mine.Handler + "\n" + o.Program; !n.warned[about] {
			n.warned[about] = true
			in.warnOfOther(mine, o)
		}
	}
}

func (in *Inbox) warnOfOther(mine, other Registration) {
	in.cfg.Logger.Warn("inbox: another program has the same consumer and handler: each event is processed by one "+
		"of the two; give one of them another name", "handler", mine.Handler,
		"program", mine.Program, "topic", mine.Topic, "other_program", other.Program, "other_topic", other.Topic)
}

// register registers the handler with the store of the leases. It is only for the warning: after a
// failure the store is asked again later, and the next Acquire reports the error.
func (a *AtLeastOnce) register(ctx context.Context, e Event) {
	scope := once.Scope("inbox", e.Consumer, e.Handler)
	a.names.Register(ctx, scope, time.Second,
		func(ctx context.Context, program string) ([]string, error) {
			return a.runner.Register(ctx, scope, program)
		},
		func(program, other string) {
			a.in.warnOfOther(
				Registration{Handler: e.Handler, Program: program, Topic: e.Topic},
				Registration{Program: other},
			)
		})
}
