package natsbridge

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/internal/link"
)

// errUnsafeConfig: the Options of a configuration lose messages or give the connection up. The
// error names each setting with the reason and the remedy.
var errUnsafeConfig = errors.New("natsbridge: unsafe NATS configuration")

// Config configures a Publisher. Only URL is required.
type Config struct {
	// URL has the servers, separated by commas: nats://user:password@host:4222,host2:4222, or
	// tls:// with TLS. A user applies to the hosts behind it. Another user begins with nats://
	// again.
	URL string
	// Options are options of nats.Connect, for credentials and TLS. They change the settings of
	// this package: reconnect without end, do not buffer, connect within ConnectTimeout, and the
	// name "ormoutbox". Unsafe ones are refused. Options that are pointers are shared with the
	// caller.
	Options []nats.Option
	// ConnectTimeout bounds connecting to each of the servers. For all servers together it must be
	// shorter than relay.Config.PublishTimeout, or its errors come too late to be reported.
	// Default: 2 s.
	ConnectTimeout time.Duration

	// Stream returns the name of the stream that has a topic. It is for a user who has no right to
	// ask the server (the subjects $JS.API.STREAM.NAMES and $JS.API.STREAM.INFO.*). Such a stream
	// is not checked. Default: the server is asked for each topic, again each minute.
	Stream func(topic string) string
	// AllowUnsafeStream accepts streams that ErrUnsafeStream names, for tests, and for topics whose
	// events may be lost.
	AllowUnsafeStream bool
	// MaxMessageBytes is the largest message, headers included, that is taken when an event is
	// recorded before the first connection. Then the server's max_payload and the stream's
	// max_msg_size count. Default: 1 MiB, the default of the server.
	MaxMessageBytes int

	// Decorate wraps the Watermill publisher, for example for metrics or tracing:
	//
	//	Decorate: func(p message.Publisher) message.Publisher { return traced{p} }
	//
	// The decorator gets one message per call. It must pass the message on, or a copy with the
	// message's context, and return the error that it gets, wrapped or not. Then classes of errors,
	// receipts and limits stay the same. Default: none.
	Decorate func(message.Publisher) message.Publisher

	// Bridge configures the parts that every bridge to Watermill has. Its Classifier sees only
	// errors that Classify leaves transient. Its Receipt and RowIDMetadata are not used. If its
	// CheckSize is nil and Marshal is not set, CheckSize checks the limits of server and stream. If
	// Marshal is set and MaxPayload is 0, MaxPayload becomes MaxMessageBytes.
	Bridge watermillbridge.Config
}

// validate fills in the defaults and returns the options to connect with.
func (c *Config) validate() (*nats.Options, error) {
	if c.URL == "" {
		return nil, errors.New("natsbridge: Config.URL is empty")
	}
	if c.ConnectTimeout < 0 || c.MaxMessageBytes < 0 {
		return nil, errors.New("natsbridge: Config.ConnectTimeout or MaxMessageBytes is negative")
	}
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 2*time.Second)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, 1<<20)
	if id := c.Bridge.RowIDMetadata; id != "" && id != rowIDMetadata {
		return nil, fmt.Errorf("natsbridge: Config.Bridge.RowIDMetadata is %q: leave it empty", id)
	}
	c.Bridge.RowIDMetadata = rowIDMetadata
	c.Bridge.Logger = cmp.Or(c.Bridge.Logger, core.DefaultLogger())
	return connectOptions(c.URL, c.ConnectTimeout, c.Bridge.Logger, c.Options)
}

// connectOptions returns the options of this package, changed by the caller's.
func connectOptions(url string, timeout time.Duration, log *slog.Logger, by []nats.Option) (*nats.Options, error) {
	o := nats.GetDefaultOptions()
	for _, set := range append([]nats.Option{
		nats.Name("ormoutbox"), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.Timeout(timeout),
		nats.ReconnectWait(500 * time.Millisecond), nats.PingInterval(10 * time.Second), nats.MaxPingsOutstanding(2),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Warn("natsbridge: the connection has a problem", "error", err)
		}),
	}, by...) {
		if set == nil {
			continue
		}
		if err := set(&o); err != nil {
			return nil, fmt.Errorf("natsbridge: Options: %w", err)
		}
	}
	all, err := servers(url)
	if err != nil {
		return nil, fmt.Errorf("natsbridge: URL: %w", err)
	}
	o.Servers = append(o.Servers, all...) // Options.Connect takes o.Url for one server
	if err := errors.Join(unsafeOptions(&o)...); err != nil {
		return nil, fmt.Errorf("%w:\n%w", errUnsafeConfig, err)
	}
	return &o, nil
}

// unsafeOptions returns every problem of o.
func unsafeOptions(o *nats.Options) (problems link.Problems) {
	refuse := problems.Add
	refuse(!o.AllowReconnect, "NoReconnect is set: nothing would be published after the first outage; leave it out")
	refuse(o.AllowReconnect && o.MaxReconnect >= 0, "MaxReconnects is %d: nothing would be published after a longer "+
		"outage; leave it out, or set -1", o.MaxReconnect)
	refuse(o.ReconnectBufSize >= 0, "ReconnectBufSize is not negative: messages whose events were given up would be "+
		"sent after an outage; leave it out, or set -1")
	refuse(o.RetryOnFailedConnect, "RetryOnFailedConnect is set: the first publish would wait for the server instead "+
		"of telling that it is away; leave it out")
	return problems
}
