package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Shown are the options that are printed beside the figures.
type Shown struct {
	Rounds   int           `json:"rounds"`
	Duration time.Duration `json:"duration_ns"` // length of one measurement, in sections that run for a time
	Events   int           `json:"events"`      // number of events in one drain
	History  int           `json:"history"`     // published rows in the table, in section history
	Backlog  int           `json:"backlog"`     // events of the large backlog, in section backlog
	Cap      time.Duration `json:"cap_ns"`      // time limit of one drain
	Keys     int           `json:"keys"`        // number of keys of the producers' ordered events
	Only     string        `json:"only,omitempty"`
}

type options struct {
	Shown

	dsn                    string
	names                  []string // sections; empty: all
	only                   *regexp.Regexp
	json, markdown, update string // files
	cpuProfile             string
	compare                string // folder
	debezium               string // folder of scripts/debezium/fetch
}

// usageError is the error of a wrong call.
type usageError struct{ error }

func parseOptions(args []string, getenv func(string) string, stderr io.Writer) (options, error) {
	var o options
	var names, only string
	var short bool
	known := make([]string, len(sections))
	for i, s := range sections {
		known[i] = s.name
	}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.dsn, "dsn", getenv("OUTBOX_TEST_POSTGRES"), "`URL` of a PostgreSQL server on which databases may "+
		"be created")
	f.StringVar(&names, "sections", "", "comma-separated `names` of sections: "+strings.Join(known, ",")+
		" (default all)")
	f.StringVar(&only, "only", "", "`regexp`: only competitors whose names match; ratios to others are left out")
	f.IntVar(&o.Rounds, "rounds", 5, "rounds; figures are medians over them")
	f.DurationVar(&o.Duration, "duration", 500*time.Millisecond, "of one measurement of producers; latency and "+
		"steady state take four times as long")
	f.IntVar(&o.Events, "events", 50_000, "backlog of a drain")
	f.IntVar(&o.History, "history", 1_000_000, "published rows in the table, in section history (which drains "+
		"20,000 events at most)")
	f.IntVar(&o.Backlog, "backlog", 500_000, "events of the large backlog, in section backlog")
	f.DurationVar(&o.Cap, "cap", 4*time.Second, "longest a drain may take; slower ones are reported with what they "+
		"did by then")
	f.IntVar(&o.Keys, "keys", 10_000, "keys of the ordered events of producers")
	f.BoolVar(&short, "short", false, "a quick look: one round of everything, small")
	f.StringVar(&o.json, "json", "", "write everything to this `file`, with the figures of each round")
	f.StringVar(&o.markdown, "markdown", "", "write the tables as Markdown to this `file`, and plots into assets "+
		"beside it")
	f.StringVar(&o.update, "update", "", "write the tables between the markers of this Markdown `file`, in place of "+
		"the same sections there, and plots into assets beside it")
	f.StringVar(&o.cpuProfile, "cpuprofile", "", "write a CPU profile to this `file`; its tag \"competitor\" tells "+
		"whose time it is")
	f.StringVar(&o.debezium, "debezium", getenv("OUTBOX_BENCH_DEBEZIUM"), "`folder` that scripts/debezium/fetch "+
		"prints: Debezium takes part in section log")
	f.StringVar(&o.compare, "compare", "", "measure nothing: print the ratios of the files before-N.json and "+
		"present-N.json of this `folder`")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, usageError{err}
	}
	if short {
		set := map[string]bool{}
		f.Visit(func(f *flag.Flag) { set[f.Name] = true })
		brief := func(name, value string) {
			if !set[name] {
				_ = f.Set(name, value)
			}
		}
		brief("rounds", "1")
		brief("duration", "100ms")
		brief("events", "5000")
		brief("history", "20000")
		brief("backlog", "20000")
		brief("cap", "2s")
		brief("keys", "1000")
	}
	o.Only = only
	if names != "" {
		o.names = strings.Split(names, ",")
	}

	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for _, name := range o.names {
		if !slices.Contains(known, name) {
			bad("unknown section %q: one of %s", name, strings.Join(known, ", "))
		}
	}
	if only != "" {
		var err error
		if o.only, err = regexp.Compile(only); err != nil {
			bad("-only: %w", err)
		}
	}
	if f.NArg() > 0 {
		bad("unexpected argument %q", f.Arg(0))
	}
	if o.dsn == "" {
		bad("no PostgreSQL server: run `make bench`, or `eval \"$(SERVICES_DURABLE=1 scripts/services up " +
			"postgres)\"` first, or give -dsn")
	}
	for name, n := range map[string]int64{
		"rounds": int64(o.Rounds), "duration": int64(o.Duration), "events": int64(o.Events),
		"history": int64(o.History), "backlog": int64(o.Backlog), "cap": int64(o.Cap), "keys": int64(o.Keys),
	} {
		if n <= 0 {
			bad("-%s must be more than 0", name)
		}
	}
	if o.Events > maxEvents || o.Backlog > maxEvents {
		bad("-events or -backlog is more than %d", maxEvents)
	}
	if len(problems) > 0 {
		return o, usageError{errors.Join(problems...)}
	}
	return o, nil
}

// wants reports whether a section is to be run.
func (o options) wants(section string) bool {
	return len(o.names) == 0 || slices.Contains(o.names, section)
}

// selects reports whether a competitor takes part.
func (o options) selects(name string) bool { return o.only == nil || o.only.MatchString(name) }
