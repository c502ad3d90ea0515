package adapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// Config configures the outbox of an adapter. It has every setting of core.Config except the
// Repository, which the adapter makes, and the settings of adapters. The zero value is usable:
// events are inserted into the existing tables, and another process relays them. All mistakes are
// reported at once when the outbox is made (New, Open; db.Use of GORM's plugin).
type Config struct {
	// Publisher is where Run sends events. Default: this process only inserts, and another one
	// relays.
	Publisher core.Publisher
	// AutoCreate creates or migrates the tables when the outbox is made. That waits for the
	// database, at most a minute. For production, apply the printed migrations
	// (sqloutbox.Migrations). Default: the tables are there.
	AutoCreate bool
	// Routes names the topics of event types; see core.Config. Default: the aggregate type.
	Routes map[string][]string
	// Relay configures the publishing: pauses, attempts, retention, limits. Default: relay.Config's
	// defaults.
	Relay relay.Config
	// Logger gets warnings and errors for operators. Default: core.DefaultLogger, which writes
	// warnings and errors to slog.Default(). To silence it: slog.New(slog.DiscardHandler).
	Logger *slog.Logger
	// Observer is called with everything that happens, for metrics. Default: none.
	Observer *core.Observer
	// Tracer has callbacks for traces, such as those of module oteloutbox. Default: none.
	Tracer *core.Tracer
	// DeadPolicy decides what a dead event does to its key. Default: core.BlockKey.
	DeadPolicy core.DeadPolicy
	// BacklogLimit makes statements and calls that publish fail with core.ErrBacklogFull while too
	// many events wait in the table. Default: no limit.
	BacklogLimit core.BacklogLimit
	// Schema and Prefix are the place of the tables; see sqloutbox.Config. Default: the
	// connection's schema, and "outbox_".
	Schema, Prefix string
	// PartitionEvery is for a table with partitions on PostgreSQL; see sqloutbox.Config. Default: none.
	PartitionEvery time.Duration
	// Outbox is an existing outbox on the same database, which this adapter shares. Of the other
	// fields, only Logger may be set with it, because the outbox has its other settings already.
	// Default: the adapter makes one.
	Outbox *core.Outbox
	// Codec encodes Event.Data. Default: core.JSON.
	Codec core.Codec
	// Headers adds headers, such as the trace context, to every event. It must not use the
	// transaction. Default: none.
	Headers func(ctx context.Context) map[string]string
	// MaxPayload is the largest payload in bytes. Default: 1 MiB.
	MaxPayload int
	// RejectUntracked makes Publish refuse events, with core.ErrUntracked, in an untracked
	// transaction. Default: they are inserted, and the poller publishes them.
	// Statements that cause events are always refused there.
	RejectUntracked bool
	// Node is the name of this process in the table. Default: host name and process id.
	Node string
	// Wake connects relays with the commits of other processes; see core.Config. Default: the
	// tables' own way.
	Wake core.WakePolicy
	// RelayedByLog leaves publishing to a program that reads the log of the database, such as
	// Debezium; see core.Config. Default: relays of this project publish.
	RelayedByLog bool
	// DisablePrepare makes every connection execute the INSERT of Publish without a prepared
	// statement of ours; see core.Config. Default: a connection of sqltx prepares it once, if its
	// driver does not, and on PostgreSQL only without a pooler.
	DisablePrepare bool
}

// beside are the fields that may be set together with Outbox.
var beside = map[string]bool{"Outbox": true, "Logger": true}

// Validate reports at once every problem of c that can be found without the database. Open calls
// it.
func (c Config) Validate() error {
	var problems []error
	if c.Outbox != nil {
		v := reflect.ValueOf(c)
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; !beside[name] && !v.Field(i).IsZero() {
				problems = append(problems,
					fmt.Errorf("outbox: config: %s and Outbox are both set: decide it where the Outbox is made", name))
			}
		}
	}
	return errors.Join(problems...)
}

// core returns the settings for core.New.
func (c Config) core(repo core.Repository) core.Config {
	return core.Config{
		Repository: repo, Publisher: c.Publisher, Relay: c.Relay, Routes: c.Routes, Logger: c.Logger,
		Observer: c.Observer, Tracer: c.Tracer, DeadPolicy: c.DeadPolicy, BacklogLimit: c.BacklogLimit,
		Codec: c.Codec, Headers: c.Headers, MaxPayload: c.MaxPayload, RejectUntracked: c.RejectUntracked,
		Node: c.Node, Wake: c.Wake, RelayedByLog: c.RelayedByLog, DisablePrepare: c.DisablePrepare,
	}
}
