package natsbridge

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ormoutbox/ormoutbox/core"
)

// SubscriberConfig configures a Subscriber. URL and Group are required.
type SubscriberConfig struct {
	// URL has the servers, separated by commas: nats://host:4222, or tls://host:4222.
	URL string
	// Group names the processes that share the messages of a topic. The server remembers the
	// handled messages, in a durable consumer whose name is the group and the topic. Use one group
	// for each handler of a Router. The name has no dots, blanks, slashes or wildcards.
	Group string
	// Options are options of nats.Connect, as in Config.
	Options []nats.Option
	// ConnectTimeout bounds connecting. Default: 2 s.
	ConnectTimeout time.Duration
	// Stream returns the name of the stream that has a topic, for a user who has no right to ask
	// the server. Default: the server is asked.
	Stream func(topic string) string

	// MaxAckPending is how many messages of a topic the group may handle at once. With 1 it keeps
	// the order of the stream, and so the order of every key. Default: 1.
	MaxAckPending int
	// AckWait is how long after a process was killed another one gets its message. A handler may
	// take longer, because the subscriber reports progress to the server. Lower it only while no
	// process of the group runs: a process that still has the longer one would report progress of a
	// slow handler too late, and another process would get its message. Default: 30 s.
	AckWait time.Duration
	// NackPause is how long a rejected message waits until it is delivered again. An inbox pauses
	// itself. Default: 100 ms.
	NackPause time.Duration
	// CloseTimeout is how long Close waits for handlers that have a message. Messages of slower
	// handlers are delivered again. Default: 30 s.
	CloseTimeout time.Duration

	// Logger gets problems between the client and the server. Default: core.DefaultLogger, warnings
	// and errors to slog.Default().
	Logger *slog.Logger
}

// validate fills in the defaults and returns the options to connect with.
func (c *SubscriberConfig) validate() (*nats.Options, error) {
	c.Logger = cmp.Or(c.Logger, core.DefaultLogger())
	var problems []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf("natsbridge: SubscriberConfig."+format, args...))
		}
	}
	refuse(c.URL == "", "URL is empty")
	refuse(c.Group == "", "Group is empty: without a group the server does not remember handled messages; choose a "+
		"name and keep it")
	refuse(strings.ContainsAny(c.Group, " \t\r\n.*>/\\"), "Group %.100q has a dot, a blank, a slash or a wildcard",
		c.Group)
	refuse(c.MaxAckPending < 0, "MaxAckPending %d is negative", c.MaxAckPending)
	for _, d := range []struct {
		name string
		set  *time.Duration
		by   time.Duration
	}{
		{"ConnectTimeout", &c.ConnectTimeout, 2 * time.Second},
		{"AckWait", &c.AckWait, 30 * time.Second},
		{"NackPause", &c.NackPause, 100 * time.Millisecond},
		{"CloseTimeout", &c.CloseTimeout, 30 * time.Second},
	} {
		refuse(*d.set < 0, "%s %s is negative", d.name, *d.set)
		if *d.set == 0 {
			*d.set = d.by
		}
	}
	c.MaxAckPending = cmp.Or(c.MaxAckPending, 1)
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return connectOptions(c.URL, c.ConnectTimeout, c.Logger, c.Options)
}
