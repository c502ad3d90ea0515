package contract

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/enum"
)

// Policy is the treatment of a message that this program cannot read.
type Policy uint8

// Policies.
const (
	// Wait: the message waits until a program that can read it is deployed. It spends no attempt
	// and never becomes dead. It holds up later messages: in the relay its key, in an inbox
	// whatever the broker delivers in order, such as a partition of Kafka.
	Wait Policy = iota + 1
	// DeadLetter: the event is dead at once and waits for a redrive. Others go on, also later
	// events of its key.
	DeadLetter
	// Skip: the message counts as processed. An inbox remembers that, and will not process it again
	// under the same names of consumer and handler. A line is logged for the first of each type and
	// version.
	Skip
)

var policyNames = []string{Wait: "wait", DeadLetter: "dead_letter", Skip: "skip"}

// String returns wait, dead_letter or skip.
func (p Policy) String() string { return enum.Name(policyNames, p, "policy") }

// HandlersConfig configures Handlers. The zero value has the defaults.
type HandlersConfig struct {
	// NewerVersion is for data of a version that this program cannot read yet, from a newer
	// producer. Default: Wait, because all events of the version fail alike, and the deployment of
	// this program fixes it: nothing has to be redriven, and the order of keys stays. Use
	// DeadLetter if the other events of the topic must not wait for the deployment.
	NewerVersion Policy
	// UnknownType is for messages of a type without a Handler, and for messages without a type.
	// Default: DeadLetter, because the type may never concern this program, and nothing gets lost.
	// Use Skip if producers may add types to the topic that do not concern this program, or Ignore
	// for single types.
	UnknownType Policy
	// Logger gets a line for the first skipped message of each type and version. Default:
	// core.DefaultLogger, warnings and errors to slog.Default().
	Logger *slog.Logger
}

// Handler handles the messages of one event type. EventType.Handle and EventType.Ignore make it.
type Handler struct {
	eventType string
	// unread is the error of Decode, and err the function's.
	handle func(ctx context.Context, m Message) (unread, err error)
}

// Handle returns a Handler that calls fn with the data of each message of the type, in its current
// version. ctx is the context of Handlers.Handle: it carries the transaction of an inbox.
func (e *EventType[T]) Handle(fn func(ctx context.Context, m Message, data T) error) Handler {
	h := Handler{eventType: e.info.Type}
	if fn == nil {
		return h // NewHandlers refuses it
	}
	h.handle = func(ctx context.Context, m Message) (unread, err error) {
		data, err := e.Decode(m)
		if err != nil {
			return err, nil
		}
		return nil, fn(ctx, m, data)
	}
	return h
}

// Ignore returns a Handler that does nothing: messages of the type count as processed.
func (e *EventType[T]) Ignore() Handler {
	return Handler{
		eventType: e.info.Type,
		handle:    func(context.Context, Message) (unread, err error) { return nil, nil },
	}
}

// Handlers calls the Handler of a message's type. It is safe for use by several goroutines.
type Handlers struct {
	cfg      HandlersConfig
	handlers map[string]Handler

	mu     sync.Mutex
	logged map[string]bool
}

// NewHandlers returns Handlers, or an error: no Handler, two of one type, one without a function,
// an unknown Policy.
func NewHandlers(cfg HandlersConfig, handlers ...Handler) (*Handlers, error) {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	cfg.NewerVersion = cmp.Or(cfg.NewerVersion, Wait)
	cfg.UnknownType = cmp.Or(cfg.UnknownType, DeadLetter)
	cfg.Logger = cmp.Or(cfg.Logger, core.DefaultLogger())
	if cfg.NewerVersion > Skip {
		bad("HandlersConfig.NewerVersion is %s", cfg.NewerVersion)
	}
	if cfg.UnknownType > Skip {
		bad("HandlersConfig.UnknownType is %s", cfg.UnknownType)
	}
	if len(handlers) == 0 {
		bad("there is no Handler")
	}
	h := &Handlers{cfg: cfg, handlers: map[string]Handler{}, logged: map[string]bool{}}
	for _, one := range handlers {
		switch _, twice := h.handlers[one.eventType]; {
		case one.eventType == "":
			bad("a Handler is empty: use Handle or Ignore of an EventType")
		case twice:
			bad("event type %q has two Handlers", one.eventType)
		case one.handle == nil:
			bad("the Handler of event type %q has no function", one.eventType)
		}
		h.handlers[one.eventType] = one
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("%w: handlers: %w", errDeclaration, errors.Join(problems...))
	}
	return h, nil
}

// Handle calls the Handler of the message's type and returns its error, or Decode's. The policies
// of HandlersConfig decide about messages that cannot be read. Return the error to the inbox, to
// Watermill or to the relay as it is: it is marked with its class.
//
//	in.Process(ctx, msg, func(ctx context.Context, _ core.Tx, msg inbox.Message) error {
//		return handlers.Handle(ctx, contract.Message{Headers: msg.Headers, Payload: msg.Payload})
//	})
func (h *Handlers) Handle(ctx context.Context, m Message) error {
	got, err := m.read()
	if one, ok := h.handlers[got.eventType]; ok && got.eventType != "" {
		unread, err := one.handle(ctx, m)
		if errors.Is(unread, ErrNewerVersion) {
			return h.apply(h.cfg.NewerVersion, got, unread)
		}
		if unread != nil {
			return unread
		}
		return err
	}
	if err != nil && got.eventType == "" { // the type may be in the part that cannot be read
		return err
	}
	err = fmt.Errorf("%w: %.128q has no Handler", ErrUnknownType, got.eventType)
	if got.eventType == "" {
		err = fmt.Errorf("%w: the message has no header %s", ErrUnknownType, core.HeaderEventType)
	}
	return h.apply(h.cfg.UnknownType, got, err)
}

func (h *Handlers) apply(p Policy, got received, err error) error {
	switch p {
	case DeadLetter:
		return core.Permanent(err)
	case Skip:
		h.log(got, err)
		return nil
	case Wait:
	}
	return core.UnavailableForKey(err)
}

// maxLogged bounds the memory of skipped messages: anybody may choose their types.
const maxLogged = 1000

func (h *Handlers) log(got received, err error) {
	name := fmt.Sprintf("%s %d", got.eventType, got.version)
	h.mu.Lock()
	first := !h.logged[name] && len(h.logged) < maxLogged
	if first {
		h.logged[name] = true
	}
	h.mu.Unlock()
	if first {
		h.cfg.Logger.Warn("contract: messages are skipped, and this is the first",
			"event_type", got.eventType, "version", got.version, "error", core.ErrorText(err))
	}
}
