package entoutbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/ormoutbox/ormoutbox/core"
)

// Config configures New. The zero value is usable: events are inserted into the existing tables,
// and another process relays them.
type Config struct {
	// Publisher is where Run sends events. Nil: this process only inserts.
	Publisher core.Publisher
	// Routes names the topics of event types; see core.Config.
	Routes map[string][]string
	// Headers adds headers, such as the trace context, to every event.
	Headers func(ctx context.Context) map[string]string
	// Logger is told what somebody has to look at. Default: core.DefaultLogger, warnings and errors
	// to slog.Default(). To silence it: slog.New(slog.DiscardHandler).
	Logger *slog.Logger
	// Observer is called with everything that happens, for metrics. Default: none.
	Observer *core.Observer
	// Configure may set any other field of core.Config, such as Retention or Workers. It is called
	// just before the outbox is made, with the fields above and Repository set.
	Configure func(*core.Config)

	// AutoCreate creates or migrates the tables in New. For production, apply the printed
	// migrations (sqloutbox.Migrations), or let Ent's migration create them (package entschema).
	AutoCreate bool
	// Schema and Prefix say where the tables are; see sqloutbox.Config. Default: the connection's
	// schema, "outbox_".
	Schema, Prefix string

	// Outbox is an outbox made elsewhere to be shared, on the same database. All fields above but
	// Logger must then be left out, because they were decided when it was made.
	Outbox *core.Outbox

	// AllowKeyless lets mutations pass that On functions want to see but that do not say which rows
	// they changed, such as client.Order.Update().Where(...): they cause no event, and the first of
	// each type is logged as a warning. Default: they are refused with ErrNoAggregateID before they
	// are executed.
	AllowKeyless bool
	// MaxResolvedRows bounds how many entities one update or delete may change that On functions
	// with ResolveRows see. One that would change more is refused with ErrTooManyRows. Default:
	// 1000.
	MaxResolvedRows int
}

// Validate reports every problem at once.
func (c Config) Validate() error {
	var problems []error
	if c.MaxResolvedRows < 0 {
		problems = append(problems, fmt.Errorf("outbox: config: MaxResolvedRows is %d: it must not be negative",
			c.MaxResolvedRows))
	}
	if c.Outbox == nil {
		return errors.Join(problems...)
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"Publisher", c.Publisher != nil},
		{"Routes", c.Routes != nil},
		{"Headers", c.Headers != nil},
		{"Observer", c.Observer != nil},
		{"Configure", c.Configure != nil},
		{"AutoCreate", c.AutoCreate},
		{"Schema", c.Schema != ""},
		{"Prefix", c.Prefix != ""},
	} {
		if f.set {
			problems = append(problems,
				fmt.Errorf("outbox: config: %s and Outbox are both set: decide it where the Outbox is made", f.name))
		}
	}
	return errors.Join(problems...)
}
