package outboxui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// Config configures the page. Outboxes is required.
type Config struct {
	// Outboxes are the outboxes of the page, the first one first. Each has a Name of its own.
	Outboxes []Outbox

	// Environment is shown on each page, with its colour.
	Environment Environment

	// Authorize returns who sends the request, and that person's rights. Nil, an error, no name and
	// rights without See all refuse the request. The text of the error goes to the log alone. The
	// path of the request, without the prefix of the page, begins with the name of the outbox, so
	// rights can differ from outbox to outbox. The name goes to the audit; it has at most 255
	// bytes.
	Authorize func(r *http.Request) (actor string, rights Rights, err error)

	// Redact, if not nil, returns the visible part of the content of an event: payload and headers.
	// It is called for each Reveal, after the audit row is written, and may change its argument.
	// The page mentions that it left something out.
	Redact func(e ops.Event, c ops.Content) ops.Content

	// TraceURL is the address of a trace, with {trace_id} in place of its id. Empty: trace ids are
	// no links.
	TraceURL string

	// Logger gets refused requests and failures. Default: slog.Default.
	Logger *slog.Logger
}

// Outbox is one outbox of the page.
type Outbox struct {
	// Name names it on the page and in the address: letters, digits, dots, hyphens and underscores,
	// at most 64, and first a letter or a digit.
	Name string
	// API has its events. The page redrives and runs plans by it, so give it the DeadPolicy of the
	// relays.
	API *ops.API
	// Database names the server, the database and the schema, such as "PostgreSQL, db1.internal,
	// database shop, schema public". It is shown before each change. Required.
	Database string
	// PoisonQueues are the queues from which the page releases parked messages, at most one for
	// each consumer. For a consumer without one, the page shows the command line for it.
	PoisonQueues []PoisonQueue
	// Doctor, if not nil, checks the database as `outbox doctor` does. Nil: the page shows how to
	// run it.
	Doctor func(ctx context.Context) ([]Finding, error)
}

// Finding is the result of one check of a doctor.
type Finding struct {
	Check string // the name of the check
	Level string // "ok", "warning" or "failure"
	Found string // the problem
	Cause string // why that matters; empty for "ok"
	Fix   string // the remedy; empty for "ok"
}

// Environment distinguishes pages. The zero value shows nothing.
type Environment struct {
	Name   string // such as "production"
	Colour string // slate, violet, pink, teal or brown; default slate
}

// Rights are a person's rights. The zero value is nothing.
type Rights uint8

// Rights. The other two need See.
const (
	See    Rights = 1 << iota // everything but payloads and headers
	Reveal                    // payloads and headers, each time with a reason that the audit keeps
	Act                       // change something, with a reason that the audit keeps
)

// Has reports whether the rights include all of want.
func (r Rights) Has(want Rights) bool { return r&want == want }

// String returns the names of the rights: "see, reveal, act", or "none".
func (r Rights) String() string {
	var names []string
	for i, name := range []string{"see", "reveal", "act"} {
		if r.Has(1 << i) {
			names = append(names, name)
		}
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

var (
	colours    = []string{"slate", "violet", "pink", "teal", "brown"}
	outboxName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
)

const traceID = "{trace_id}"

// withDefaults checks the Config and returns it with its defaults.
func (c Config) withDefaults() (Config, error) {
	var wrong []error
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf("outboxui: "+format, args...)) }
	if len(c.Outboxes) == 0 {
		say("Config.Outboxes is empty")
	}
	var names []string
	for i, o := range c.Outboxes {
		switch {
		case !outboxName.MatchString(o.Name):
			say("Config.Outboxes[%d].Name %.80q is not 1 to 64 letters, digits, dots, hyphens and underscores, "+
				"first a letter or a digit", i, o.Name)
		case slices.Contains(names, o.Name):
			say("Config.Outboxes[%d].Name %q is used by another outbox", i, o.Name)
		}
		names = append(names, o.Name)
		if o.API == nil {
			say("Config.Outboxes[%d].API is nil", i)
		}
		for _, q := range o.PoisonQueues {
			if q.Consumer == "" || q.Open == nil {
				say("Config.Outboxes[%d].PoisonQueues has one without Consumer or Open", i)
			}
		}
		if o.Database == "" {
			say("Config.Outboxes[%d].Database is empty: people see it before each change", i)
		}
	}
	c.Environment.Colour = cmp.Or(c.Environment.Colour, "slate")
	if !slices.Contains(colours, c.Environment.Colour) {
		say("Config.Environment.Colour %.40q is none of %s", c.Environment.Colour, strings.Join(colours, ", "))
	}
	if c.TraceURL != "" {
		u, err := url.Parse(c.TraceURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
			strings.Contains(u.Host, traceID) ||
			!strings.Contains(c.TraceURL, traceID) {
			say("Config.TraceURL %.200q is no address of http or https with %s in it", c.TraceURL, traceID)
		}
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c, errors.Join(wrong...)
}
