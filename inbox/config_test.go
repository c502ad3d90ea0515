package inbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/inboxtest"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/inbox"
)

func TestConfigNamesEveryProblemAtOnce(t *testing.T) {
	_, err := coreinbox.New(coreinbox.Config{Store: (*sqlinbox.Store)(nil), OnlyNewer: []string{""}, Retention: -1})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{
		"Consumer is empty", "Config.Transactor: the Transactor is nil", "Store is nil",
		"OnlyNewer",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// An id must be remembered for longer than its message can come again.
func TestConfigRefusesAShortRetention(t *testing.T) {
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		retention, broker, replay time.Duration
		says                      string // empty: accepted
	}{
		"default":                        {0, 0, 0, ""},
		"default, with a slow broker":    {0, 60 * day, 0, ""},
		"for ever":                       {-1, 0, 0, ""},
		"longer than both":               {31 * day, 7 * day, 30 * day, ""},
		"broker not declared":            {31 * day, 0, 0, "BrokerRetention is needed"},
		"shorter than the broker's":      {6 * day, 7 * day, 0, "not longer than BrokerRetention 168h0m0s"},
		"as long as the broker's":        {7 * day, 7 * day, 0, "not longer than"},
		"shorter than the replay window": {8 * day, 7 * day, 30 * day, "ReplayWindow 720h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := coreinbox.New(coreinbox.Config{
				Consumer: "c", Transactor: outboxtest.NewRepository().Transactor(), Store: inboxtest.NewStore(),
				Retention: tt.retention, BrokerRetention: tt.broker, ReplayWindow: tt.replay,
			})
			if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("%v, want %q", err, tt.says)
			}
		})
	}
}

// All wrong arguments are reported at once, where the program starts.
func TestMiddlewarePanicsOnNonsense(t *testing.T) {
	tx := outboxtest.NewRepository().Transactor()
	store := outboxtest.NewOnceStore()
	for name, tt := range map[string]struct {
		make func() message.HandlerMiddleware
		says []string
	}{
		"nothing": {
			func() message.HandlerMiddleware { return inbox.Middleware(nil, "") },
			[]string{"inbox.Middleware", "the Transactor is nil", "Consumer is empty"},
		},
		"no pool": {
			func() message.HandlerMiddleware { return inbox.SQL(nil, "c") },
			[]string{"inbox.Middleware", "nil *sql.DB"},
		},
		"no store": {
			func() message.HandlerMiddleware { return inbox.Leased(nil, "c") },
			[]string{"inbox.Leased", "Store is missing"},
		},
		"options": {func() message.HandlerMiddleware {
			return inbox.Middleware(tx, "c", nil, inbox.Poison(nil, "t"), inbox.Retry(nil), inbox.Publisher(nil),
				inbox.TTL(time.Hour), inbox.AckDead())
		}, []string{
			"Option is nil", "Poison needs", "Retry was given nil", "Publisher was given nil", "TTL is for",
			"only one of Poison, AckDead",
		}},
		"options of the other": {func() message.HandlerMiddleware {
			return inbox.Leased(store, "c", inbox.CreateTables(), inbox.AckDead(), inbox.TTL(-1))
		}, []string{"CreateTables is for", "AckDead is for", "time to live"}},
		"options of Middleware": {func() message.HandlerMiddleware {
			return inbox.Wrap[*coreinbox.Inbox](nil, inbox.CreateTables(), inbox.TTL(time.Hour))
		}, []string{"CreateTables is for", "TTL is for", "the inbox is nil", "add Poison"}},
	} {
		t.Run(name, func(t *testing.T) {
			refuses(t, func() { tt.make() }, tt.says...)
		})
	}
}

// refuses wants that fn panics with a text that has all the parts.
func refuses(t *testing.T, fn func(), parts ...string) {
	t.Helper()
	defer func() {
		t.Helper()
		said, _ := recover().(string)
		for _, part := range parts {
			if !strings.Contains(said, part) {
				t.Errorf("%q does not say %q", said, part)
			}
		}
	}()
	fn()
	t.Error("accepted")
}

// The links of the chain are in their order. A message that cannot be sent to the poison queue
// stays with the broker.
func TestLeasedChain(t *testing.T) {
	out := &publisher{err: errHandler}
	retried := 0
	m := inbox.Leased(outboxtest.NewOnceStore(), "c", inbox.Poison(out, "poison"),
		inbox.Retry(func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) { retried++; return h(msg) }
		}))
	h := m(func(*message.Message) ([]*message.Message, error) { return nil, nil })
	bad := message.NewMessage("", nil) // it has no id
	if _, err := h(bad); err == nil || !strings.Contains(err.Error(), "poison queue") || len(bad.Metadata) != 0 {
		t.Errorf("%v, metadata %v", err, bad.Metadata)
	}
	out.err = nil
	if _, err := h(bad); err != nil || len(out.topics) != 2 || retried != 2 {
		t.Errorf("%v, published to %v, %d retries", err, out.topics, retried)
	}
}
