package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/inboxtest"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/inbox"
)

// wired is an inbox for a Router.
type wired struct {
	*coreinbox.Inbox
	opts []inbox.Option
}

func (w *wired) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return inbox.Wrap(w.Inbox, w.opts...)(h)
}

func (w *wired) ProcessBatch(ctx context.Context, msgs []*message.Message,
	fn func(ctx context.Context, fresh []*message.Message) error,
) []error {
	return inbox.ProcessBatch(ctx, w.Inbox, msgs, fn)
}

func (w *wired) Event(msg *message.Message) (coreinbox.Event, error) {
	return w.Inbox.Event(inbox.MessageOf(msg))
}

// Defaults of an inbox.
const (
	maxAttempts   = 10
	minAge        = 5 * time.Minute
	maxRetryPause = 10 * time.Second
)

// world is an inbox in memory. It keeps the effects of transactions that committed, and what its
// observer was told.
type world struct {
	t     *testing.T
	repo  *outboxtest.Repository
	store *inboxtest.Store
	in    *wired

	mu      sync.Mutex
	effects map[string]int
	heard   map[string]int
	infos   []coreinbox.Info
}

func newWorld(t *testing.T, set ...func(*coreinbox.Config)) *world {
	t.Helper()
	w := &world{
		t: t, repo: outboxtest.NewRepository(), store: inboxtest.NewStore(), effects: map[string]int{},
		heard: map[string]int{},
	}
	hear := func(name string) func(coreinbox.Info) {
		return func(i coreinbox.Info) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.heard[name]++
			w.infos = append(w.infos, i)
		}
	}
	cfg := coreinbox.Config{
		Consumer: "billing", Transactor: w.repo.Transactor(), Store: w.store, MinAge: -1, RetryPause: -1,
		Handler: "handler",
		Observer: &coreinbox.Observer{
			Processed: hear("processed"), Duplicate: hear("duplicate"), Stale: hear("stale"),
			InProgress: hear("in progress"), Failed: hear("failed"), Dead: hear("dead"),
			Produced: func(_ coreinbox.Info, n int) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.heard["produced"] += n
			},
		},
	}
	for _, fn := range set {
		fn(&cfg)
	}
	in, err := coreinbox.New(cfg)
	must(t, err)
	w.in = &wired{in, []inbox.Option{inbox.ReturnDead()}}
	return w
}

// apply is the effect of an event. The effect counts once the transaction of ctx has committed.
func (w *world) apply(ctx context.Context, id string) error {
	tx, ok := core.TxFromContext(ctx)
	if !ok {
		return core.ErrNoTransaction
	}
	tx.OnOutcome(func(o core.Outcome) {
		if o == core.Committed {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.effects[id]++
		}
	})
	return nil
}

// handler applies each message.
func (w *world) handler(msg *message.Message) ([]*message.Message, error) {
	return nil, w.apply(msg.Context(), msg.Metadata.Get(core.HeaderEventID))
}

func (w *world) effect(id string, want int) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	equal(w.t, w.effects[id], want, "effects of %s", id)
}

func (w *world) hears(name string, want int) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := w.heard[name]; got != want {
		w.t.Errorf("%s %d times, want %d (all: %v)", name, got, want, w.heard)
	}
}

// event returns a new message of an event, with metadata in pairs.
func event(ctx context.Context, id string, metadata ...string) *message.Message {
	msg := message.NewMessageWithContext(ctx, watermill.NewUUID(), nil)
	msg.Metadata.Set(core.HeaderEventID, id)
	for i := 0; i < len(metadata); i += 2 {
		msg.Metadata.Set(metadata[i], metadata[i+1])
	}
	return msg
}

// deliver calls the middleware as a Router does.
func (w *world) deliver(h message.HandlerFunc, msg *message.Message) error {
	w.t.Helper()
	ctx := msg.Context()
	produced, err := w.in.Middleware(h)(msg)
	if len(produced) > 0 {
		w.t.Errorf("%d messages are left for the Router to publish", len(produced))
	}
	equal(w.t, msg.Context(), ctx, "the context of the message was not restored")
	return err
}

// routed is a Router on a Go channel. The handler that add registers runs until the test ends.
func routed(t *testing.T, add func(r *message.Router, pubsub *gochannel.GoChannel)) *gochannel.GoChannel {
	t.Helper()
	pubsub := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	r, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	must(t, err)
	add(r, pubsub)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(context.Background()) }()
	<-r.Running()
	t.Cleanup(func() {
		noError(t, r.Close())
		noError(t, <-ended)
		_ = pubsub.Close()
	})
	return pubsub
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// noError fails the test if err is not nil, and goes on. Goroutines of a test may call it.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// wantErr fails the test unless err is the target. The rest says what was tried.
func wantErr(t testing.TB, err, target error, format string, args ...any) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(format, args...), err, target)
	}
}

// equal fails the test unless got is want. The rest says of what.
func equal[T comparable](t testing.TB, got, want T, format string, args ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(format, args...), got, want)
	}
}

// errOf returns the error of a call whose result does not matter.
func errOf[T any](_ T, err error) error { return err }
