package redisbridge

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/internal/link"
)

// errUnsafeConfig: Config.Client has settings that double events or ignore time limits, or is a
// client for which order cannot be kept. The error names each problem with the remedy.
var errUnsafeConfig = errors.New("redisbridge: unsafe Redis configuration")

// Config configures a Publisher. Only Client is required.
type Config struct {
	// Client is a *redis.Client or a *redis.ClusterClient, whose settings are checked; Options
	// makes safe ones. A client of another type is not checked. Closing the Publisher closes it.
	Client redis.UniversalClient
	// Replicas is the number of replicas that must have an entry before its event is done. An entry
	// that fewer have within ReplicaTimeout is written again later, so consumers may see a copy. It
	// needs a *redis.Client. Default: 0, the answer of the server is enough.
	Replicas int
	// ReplicaTimeout must be shorter than relay.Config.PublishTimeout. Default: 1 s.
	ReplicaTimeout time.Duration
	// MaxLen is the length beyond which a stream loses its oldest entries with each new one, read
	// or not. Set it only if every consumer is always far less than that behind. Default: 0,
	// nothing is deleted.
	MaxLen int64
	// AllowUnsafeServer accepts servers that ErrUnsafeServer names, for tests, and for topics whose
	// events may be lost.
	AllowUnsafeServer bool

	// Decorate wraps the Watermill publisher, for example for metrics or tracing:
	//
	//	Decorate: func(p message.Publisher) message.Publisher { return traced{p} }
	//
	// The decorator gets one message per call. It must pass the message on, or a copy with the
	// message's context, and return the error that it gets, wrapped or not. Then classes of errors
	// and receipts stay the same. Default: none.
	Decorate func(message.Publisher) message.Publisher

	// Bridge configures the parts that every bridge to Watermill has. Its Classifier sees only
	// errors that Classify leaves transient. Its Receipt is not used. If its MaxPayload is 0, it
	// becomes 512 MB, the limit of a Redis string.
	Bridge watermillbridge.Config
}

// maxString is the default of proto-max-bulk-len.
const maxString = 512 << 20

// Options returns options for redis.NewClient, from a URL as redis.ParseURL reads it. A command is
// sent once and ends with its context. Parameters of the URL count.
func Options(address string) (*redis.Options, error) {
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, fmt.Errorf("redisbridge: the URL: %w", link.ParseError(err))
	}
	o.ContextTimeoutEnabled = true
	o.MaxRetries = cmp.Or(o.MaxRetries, -1)
	o.DialerRetries = 1                 // the relay tries again
	o.PoolSize = cmp.Or(o.PoolSize, 32) // relay.Config.Workers
	o.ClientName = cmp.Or(o.ClientName, "ormoutbox")
	return o, nil
}

func (c *Config) validate() error {
	if c.Client == nil {
		return errors.New("redisbridge: Config.Client is nil")
	}
	if c.Replicas < 0 || c.ReplicaTimeout < 0 || c.MaxLen < 0 {
		return errors.New("redisbridge: Config.Replicas, ReplicaTimeout or MaxLen is negative")
	}
	c.ReplicaTimeout = cmp.Or(c.ReplicaTimeout, time.Second)
	if c.ReplicaTimeout < time.Millisecond {
		return fmt.Errorf("redisbridge: Config.ReplicaTimeout %s is less than a millisecond", c.ReplicaTimeout)
	}
	if err := errors.Join(c.unsafeSettings()...); err != nil {
		return fmt.Errorf("%w:\n%w", errUnsafeConfig, err)
	}
	return nil
}

// unsafeSettings returns every problem of the client.
func (c *Config) unsafeSettings() (problems link.Problems) {
	refuse := problems.Add
	const timeouts = "ContextTimeoutEnabled is false: a publish would not end with its time; set true"
	switch client := c.Client.(type) {
	case *redis.Client:
		o := client.Options()
		refuse(!o.ContextTimeoutEnabled, timeouts)
		tooShort := o.ReadTimeout > 0 && c.ReplicaTimeout >= o.ReadTimeout
		refuse(c.Replicas > 0 && tooShort, "ReadTimeout %s is not longer than Config.ReplicaTimeout %s: "+
			"the connection is given up before Redis answers; set more", o.ReadTimeout, c.ReplicaTimeout)
		refuse(o.MaxRetries > 0, "MaxRetries is %d: a retry stores an event twice, and the relay "+
			"retries anyway; set -1", o.MaxRetries)
	case *redis.ClusterClient:
		o := client.Options()
		refuse(!o.ContextTimeoutEnabled, timeouts)
		refuse(o.ReadOnly || o.RouteByLatency || o.RouteRandomly, "ReadOnly, RouteByLatency or RouteRandomly is set: "+
			"it is for readers; leave it out")
		refuse(c.Replicas > 0, "Config.Replicas with a *redis.ClusterClient: WAIT belongs to a connection of one "+
			"server; set min-replicas-to-write on the servers")
	case *redis.Ring:
		refuse(true, "a *redis.Ring moves topics to other servers when one is away, and their order is lost; use a "+
			"*redis.Client or a *redis.ClusterClient")
	default:
		refuse(c.Replicas > 0, "Config.Replicas needs a *redis.Client, not a %T", client)
	}
	return problems
}
