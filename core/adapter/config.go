package adapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/settings"
)

// Config configures the outbox of an adapter. It has every setting of core.Config except the
// Repository, which the adapter makes, and the settings of adapters. The zero value is usable:
// events are inserted into the existing tables, and another process relays them. All mistakes are
// reported at once when the outbox is made (New, Open; db.Use of GORM's plugin).
type Config struct {
	// AutoCreate creates or migrates the tables when the outbox is made. That waits for the
	// database, at most a minute. For production, apply the printed migrations
	// (sqloutbox.Migrations).
	AutoCreate bool
	// Schema and Prefix name the tables; see sqloutbox.Config. Default: the connection's schema,
	// "outbox_".
	Schema, Prefix string
	// PartitionEvery is for a table with partitions on PostgreSQL; see sqloutbox.Config.
	PartitionEvery time.Duration
	// Outbox is an existing outbox on the same database, which this adapter shares. Of the other
	// fields, only Logger may be set with it, because the outbox has its other settings already.
	Outbox *core.Outbox

	// Publisher is where Run sends events. Nil: this process only inserts.
	Publisher core.Publisher
	// RelayedByLog leaves publishing to a program that reads the log of the database, such as
	// Debezium; see core.Config. Default: relays of this project publish.
	RelayedByLog bool
	// Routes names the topics of event types; see core.Config.
	Routes map[string][]string
	// Codec encodes Event.Data. Default: core.JSON.
	Codec core.Codec
	// Headers adds headers, such as the trace context, to every event. It must not use the
	// transaction.
	Headers func(ctx context.Context) map[string]string
	// MaxPayload is the largest payload in bytes. Default: 1 MiB.
	MaxPayload int
	// RejectUntracked makes Publish refuse events, with core.ErrUntracked, in an untracked
	// transaction. Default: they are inserted, and the poller publishes them. Statements that cause
	// events are always refused there.
	RejectUntracked bool
	// DisablePrepare makes every connection execute the INSERT of Publish without a prepared
	// statement of ours; see core.Config. Default: a connection of sqltx prepares it once, if its
	// driver does not, and on PostgreSQL only without a pooler.
	DisablePrepare bool

	// BacklogLimit makes statements and calls that publish fail with core.ErrBacklogFull while too
	// many events wait in the table. Default: no limit.
	BacklogLimit core.BacklogLimit

	// Node is the name of this process in the table. It and the fields below are described in
	// core.Config, with their defaults.
	Node            string
	Workers         int                         // events that are published at once
	InFlight        int                         // events that an AsyncPublisher has not answered
	InFlightBytes   int64                       // bytes of these
	PublishTimeout  time.Duration               // ends a publish
	HotEvents       int                         // bounds the fast path
	HotBytes        int64                       // bounds the fast path
	ColdEvents      int                         // bounds the events that the poller holds
	ColdBytes       int64                       // bounds the events that the poller holds
	HotLease        time.Duration               // lease of the process that wrote the row
	ClaimLease      time.Duration               // lease of the process that polled the row
	LeaseMargin     time.Duration               // between a publish and the end of its lease
	MaxLease        time.Duration               // the longest possible lease
	PollInterval    time.Duration               // pause between polls
	MaxPollInterval time.Duration               // the longest pause
	Wake            core.WakePolicy             // how relays hear of other processes
	ClaimBatch      int                         // rows that one claim takes
	KeyRun          int                         // rows of one key that one claim takes
	MarkBatch       int                         // marks that one statement writes
	MarkDelay       time.Duration               // longest wait before marks are written
	MaxUnmarked     int                         // most marks that wait to be written
	Retry           core.RetryPolicy            // attempts and pauses of refused events
	RetryByType     map[string]core.RetryPolicy // attempts and pauses of single event types
	Breaker         core.BreakerPolicy          // pauses of destinations that fail
	MaxCrashes      int                         // processes that may die during publishes of one event
	DeadPolicy      core.DeadPolicy             // what a dead event means for its key
	Classifier      func(error) core.Class      // judges unmarked publish errors
	Retention       core.Retention              // how long published rows are kept
	DisableJanitor  bool                        // leave the cleanup to other processes
	ShutdownTimeout time.Duration               // longest time for Run to return after its context has ended

	// Logger gets warnings and errors for an operator. Default: core.DefaultLogger, which writes
	// them to slog.Default(). To silence it: slog.New(slog.DiscardHandler).
	Logger *slog.Logger
	// Observer has callbacks for metrics, one for each kind of result. Default: none.
	Observer *core.Observer
	// Tracer has callbacks for traces, those of module oteloutbox for example. Default: none.
	Tracer *core.Tracer
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
	own := core.Config{Repository: repo}
	settings.Copy(&own, c)
	return own
}
