package gormoutbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/ormoutbox/ormoutbox/core"
)

// Config configures the plugin. The zero value is usable: events are inserted into the existing
// tables, and another process relays them. Mistakes are reported by db.Use.
type Config struct {
	// Publisher is where Run sends events. Nil: this process only inserts.
	Publisher core.Publisher
	// Routes names the topics of event types; see core.Config.
	Routes map[string][]string
	// RejectUntracked refuses events, with ErrUntracked, in a transaction whose commit cannot be
	// heard. Default: they are inserted, and the poller finds them.
	RejectUntracked bool
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

	// AutoCreate creates or migrates the tables in db.Use. For production, apply the printed
	// migrations (sqloutbox.Migrations).
	AutoCreate bool
	// Schema and Prefix say where the tables are; see sqloutbox.Config. Default: the connection's
	// schema, "outbox_".
	Schema, Prefix string

	// Outbox is an outbox made elsewhere to be shared, on the same database. All fields above but
	// Logger must then be left out, because they were decided when it was made.
	Outbox *core.Outbox

	// AllowKeyless lets statements pass that On functions want to see but that do not say what they
	// changed, such as Where(...).Delete(&Order{}): they cause no event, and the first of each
	// model is logged as a warning. Default: they are refused with ErrNoAggregateID. ResolveRows
	// makes them cause their events.
	AllowKeyless bool
	// MaxResolvedRows is the most rows that a statement may change for On functions with
	// ResolveRows; one that would change more is refused with ErrTooManyRows before it is executed.
	// Default: 1000.
	MaxResolvedRows int
	// Name is the name of the plugin, so that one *gorm.DB can have several. Default: "outbox".
	Name string
}

const defaultName = "outbox"

func (c Config) validate() error {
	var problems []error
	if c.MaxResolvedRows < 0 {
		problems = append(problems, errors.New("outbox: config: MaxResolvedRows is negative"))
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
		{"RejectUntracked", c.RejectUntracked},
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
