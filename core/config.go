package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// Config configures an Outbox. Only Repository is required. The zero value of every other field
// means the documented default. An Outbox does not change its Config. Do not change it after the
// call of New.
type Config struct {
	// Repository is the table. Adapters of ORMs set it.
	Repository Repository
	// Publisher is where Run sends events. Default: this process only inserts, and another one
	// relays.
	Publisher Publisher
	// Relay makes the relay that publishes: relay.Config of package core/relay, whose zero value is
	// usable. Adapters of ORMs set it. Default: none. A Publisher without a Relay is refused.
	Relay RelayConfig
	// Routes names the topics of event types, for events without a Topic. One row is inserted for
	// each topic. Processes without a Publisher use Routes too. Default: Event.AggregateType, or the
	// type of an event that has none.
	Routes map[string][]string
	// Logger gets warnings and errors for operators. Default: DefaultLogger, which writes warnings
	// and errors to slog.Default(). To silence it: slog.New(slog.DiscardHandler).
	Logger *slog.Logger
	// Observer is called with everything that happens, for metrics. Default: none.
	Observer *Observer
	// Tracer is called around Publish and around each call of the Publisher, for traces. Module
	// oteloutbox makes one. Default: none.
	Tracer *Tracer
	// DeadPolicy decides what a DEAD event does to its key. Default: BlockKey.
	DeadPolicy DeadPolicy
	// BacklogLimit makes Publish refuse events with ErrBacklogFull while too many wait in the
	// table. Default: no limit.
	BacklogLimit BacklogLimit
	// Codec encodes Event.Data. Default: JSON.
	Codec Codec
	// Headers adds headers, such as the trace context, to every event at Publish. An event's own
	// headers win. Default: none.
	Headers func(ctx context.Context) map[string]string
	// MaxPayload is the largest payload in bytes. Default: 1 MiB, and 896 KiB with RelayedByLog, so
	// that the message fits into the 1 MiB that Kafka takes by default. Publish also asks a
	// SizeChecker, such as the bridges to Kafka and RabbitMQ, about the limit of the destination.
	// In a process without a Publisher, MaxPayload is the only limit.
	MaxPayload int
	// RejectUntracked makes Publish return ErrUntracked in a transaction whose commit the outbox
	// cannot observe. Default: the rows are inserted, and the poller publishes them.
	RejectUntracked bool
	// Node names this process in the column claimed_by. A random suffix is added. Default: host name
	// and process id.
	Node string
	// Wake connects relays with commits of other processes, in both directions. Default: the
	// Repository's own way.
	Wake WakePolicy
	// RelayedByLog leaves publishing to a program that reads committed rows from the log of the
	// database, such as Debezium. Publish inserts rows that are DONE, with LogReader in the column
	// claimed_by: no relay claims or marks them, and Relay.Retention deletes them by their age. The
	// table does not show which of them are published, so Backlog does not count them, and
	// BacklogLimit cannot be set. An event with a Delay is refused. Rows of ServedTopicPrefix are
	// inserted as without RelayedByLog, because a Publisher executes them. A Publisher of other
	// topics is refused, and so is Relay.Retention.DeleteOnSuccess. Without a Publisher, Run of a
	// Relay cleans up and publishes nothing. Default: relays of this project publish.
	RelayedByLog bool
	// DisablePrepare makes every connection execute the INSERT of Publish without a prepared
	// statement of ours. Set it where something deallocates statements unseen, such as a session
	// reset of the driver with DISCARD ALL, or behind a pooler that is not recognised. A relay on a
	// pool of module pgxoutbox prepares its claims all the same. At worst, one claim fails, and the
	// next poll repeats it. Default: a connection of sqltx.Connector prepares the INSERT once and
	// keeps it, if its driver does not (pgdriver, pgx in another mode than the default one,
	// go-sql-driver/mysql), and on PostgreSQL only on a direct connection, not behind PgBouncer.
	DisablePrepare bool
}

// DeadPolicy decides whether the events behind a DEAD event of their key wait.
type DeadPolicy uint8

const (
	// BlockKey: the key waits until a person redrives or discards the dead event. Order is kept.
	BlockKey DeadPolicy = iota
	// SkipDead: the key goes on, also past events that died under BlockKey: a relay removes them
	// from the key. A redriven event is appended at the end of its key.
	SkipDead
)

// withDefaults returns c with every zero field set to its default.
func (c Config) withDefaults() Config {
	if c.RelayedByLog {
		c.MaxPayload = cmp.Or(c.MaxPayload, maxLogPayload)
	}
	c.MaxPayload = cmp.Or(c.MaxPayload, 1<<20)
	c.Wake = c.Wake.withDefaults(c.Repository)
	if c.Codec == nil {
		c.Codec = JSON
	}
	c.Logger = cmp.Or(c.Logger, DefaultLogger())
	return c
}

// Validate reports every problem of c at once. New calls it.
func (c Config) Validate() error {
	c = c.withDefaults()
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("outbox: config: "+format, args...))
	}
	if c.Repository == nil {
		bad("Repository is missing")
	}
	for name, n := range map[string]int64{
		"MaxPayload": int64(c.MaxPayload), "BacklogLimit.Rows": int64(c.BacklogLimit.Rows),
		"BacklogLimit.Age": int64(c.BacklogLimit.Age),
	} {
		if n < 0 {
			bad("%s is negative", name)
		}
	}
	if c.RelayedByLog {
		c.validateLog(bad)
	}
	if c.DeadPolicy > SkipDead {
		bad("DeadPolicy %d is unknown", c.DeadPolicy)
	}
	if len(c.Node) > 128 {
		bad("Node has %d bytes, more than 128", len(c.Node))
	}
	c.validateRoutes(bad)
	if err := checkPublisher(c.Publisher); err != nil {
		bad("Publisher: %w", err)
	} else if tl, ok := c.Publisher.(TopicLister); ok {
		if topics := tl.Topics(); topics != nil && len(topics) == 0 {
			bad("Publisher serves no topic: give the Router at least one Handle or HandleOther")
		}
	}
	switch {
	case c.Relay != nil:
		for _, err := range c.Relay.Problems(c) {
			bad("%w", err)
		}
	case c.Publisher != nil:
		bad("Publisher is set and Relay is not: set Relay to relay.Config{} of package core/relay, or leave " +
			"Publisher out where another process relays")
	}
	return errors.Join(problems...)
}

func (c *Config) validateRoutes(bad func(format string, args ...any)) {
	for typ, topics := range c.Routes {
		if typ == "" {
			bad("Routes has an empty event type")
		}
		if len(topics) == 0 {
			bad("Routes[%q] names no topic", errtext.Clip(typ, 64))
		}
		seen := map[string]bool{}
		for _, t := range topics {
			checkText(bad, fmt.Sprintf("Routes[%q]: topic", errtext.Clip(typ, 64)), t, maxTopic, true)
			if seen[t] {
				bad("Routes[%q] names topic %q twice", errtext.Clip(typ, 64), errtext.Clip(t, 64))
			}
			seen[t] = true
		}
	}
}

// topicsOf returns the destinations of an event. By default events of one aggregate have one topic,
// because order is kept only within a topic.
func (c *Config) topicsOf(e *Event) []string {
	if routes := c.Routes[e.Type]; e.Topic == "" && len(routes) > 0 {
		return routes
	}
	return []string{cmp.Or(e.Topic, e.AggregateType, e.Type)}
}

// knownTopics returns the topics for which events may be recorded: the topics that this process's
// publisher serves, and the topics in Routes. Nil: all.
func (c *Config) knownTopics() map[string]bool {
	l, ok := c.Publisher.(TopicLister)
	if !ok {
		return nil
	}
	served := l.Topics()
	if served == nil {
		return nil
	}
	known := map[string]bool{}
	for _, topic := range served {
		known[topic] = true
	}
	for _, routes := range c.Routes {
		for _, topic := range routes {
			known[topic] = true
		}
	}
	return known
}

// byLog reports whether a reader of the log publishes the events of the topic.
func (c *Config) byLog(topic string) bool {
	return c.RelayedByLog && !strings.HasPrefix(topic, ServedTopicPrefix)
}

// validateLog reports settings that contradict RelayedByLog.
func (c *Config) validateLog(bad func(format string, args ...any)) {
	if c.BacklogLimit != (BacklogLimit{}) {
		bad("BacklogLimit and RelayedByLog are both set: the table does not know which events are published. Watch " +
			"the lag of the program that reads the log")
	}
	if c.Publisher == nil {
		return
	}
	tl, ok := c.Publisher.(TopicLister)
	if !ok || tl.Topics() == nil {
		bad("Publisher and RelayedByLog are both set: the program that reads the log publishes. Leave out one of "+
			"them, or give a Router that handles only topics of %q", ServedTopicPrefix)
		return
	}
	for _, t := range tl.Topics() {
		if !strings.HasPrefix(t, ServedTopicPrefix) {
			bad("Publisher takes topic %q, which the program that reads the log publishes, because RelayedByLog is "+
				"set: leave one of them out", errtext.Clip(t, 64))
		}
	}
}
