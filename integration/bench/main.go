// Command bench measures the outbox and its alternatives, side by side in one run.
//
// Each table has a row for each competitor. They take turns inside each round, and each round
// starts with another one, so that a slow moment of the machine hits all of them. A figure is the
// median over the rounds, and a ratio is the median of the ratios within each round. Every
// competitor's work is checked: an event that is lost, left open, changed or published twice is an
// error.
//
//	make bench                                     # from the root: starts durable servers
//	make bench BENCHFLAGS='-sections drain -rounds 7'
//
// It exits with 0 when every section ran without an error, whatever the figures are, with 1 after
// an error, and with 2 when it was called wrongly. It works in databases, topics and a slot of its
// own, which it drops. docs/benchmarks.md says how to read the tables.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// sections are run in this order.
var sections = []struct {
	name string
	run  func(ctx context.Context, e *env) error
	long bool // runs only when it is named
}{
	{name: "produce", run: runProduce},
	{name: "drain", run: runDrain},
	{name: "steady", run: runSteady},
	{name: "latency", run: runLatency},
	{name: "wake", run: runWake},
	{name: "peers", run: runPeers},
	{name: "torture", run: runTorture, long: true},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are the flags, the servers, and the sizes that -short makes small.
type options struct {
	sections                        []string // empty: all but long ones
	only                            *regexp.Regexp
	rounds                          int
	json, page, cpuProfile, compare string // files and a folder

	postgres, mariadb, kafka string // servers; only the first must be there
	debezium                 string // the folder of scripts/debezium/fetch; empty: without Debezium

	duration time.Duration // of one measurement of producers; latency and steady state take four times as long
	events   int           // of a backlog
	limit    time.Duration // of a drain; a slower one is reported with what it did by then
	keys     int           // of the producers' ordered events

	torture          time.Duration // of the reports of section torture, for each competitor
	rate             int           // of its producers, in events a second
	samples, picture string        // its files
}

// run is the whole program.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	opts, err := parseOptions(args, getenv, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitDone
	case err != nil:
		fmt.Fprintln(stderr, "bench:", err)
		return exitUsage
	case opts.compare != "":
		err = compare(opts.compare, stdout)
	default:
		_, err = measure(ctx, opts, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitFailed
	}
	return exitDone
}

func parseOptions(args []string, getenv func(string) string, stderr io.Writer) (options, error) {
	o := options{
		postgres: getenv("OUTBOX_TEST_POSTGRES"), mariadb: getenv("OUTBOX_TEST_MARIADB"),
		kafka: getenv("OUTBOX_TEST_KAFKA"), debezium: getenv("OUTBOX_BENCH_DEBEZIUM"),
		duration: 500 * time.Millisecond, events: 50_000, limit: 4 * time.Second, keys: 10_000,
	}
	var known []string
	for _, s := range sections {
		known = append(known, s.name)
	}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	names := f.String("sections", "", "comma-separated `names`: "+strings.Join(known, ",")+
		" (default all but torture)")
	only := f.String("only", "", "`regexp`: only competitors whose names match; ratios to others are left out")
	f.IntVar(&o.rounds, "rounds", 5, "rounds; figures are medians over them")
	short := f.Bool("short", false, "a quick look: one small round of everything")
	f.StringVar(&o.json, "json", "", "write the figures of each round to this `file`")
	f.StringVar(&o.page, "page", "", "write the tables between their markers in this Markdown `file`")
	f.StringVar(&o.cpuProfile, "cpuprofile", "", "write a CPU profile to this `file`; its tag \"competitor\" tells "+
		"whose time it is")
	f.StringVar(&o.compare, "compare", "", "measure nothing: print the ratios of the files before-N.json and "+
		"present-N.json of this `folder`")
	minutes := f.Int("minutes", 15, "section torture: how long there are reports, for each competitor")
	f.IntVar(&o.rate, "rate", 800, "section torture: events a second")
	f.StringVar(&o.samples, "samples", "", "section torture: write what was seen each second to this CSV `file`")
	f.StringVar(&o.picture, "picture", "", "section torture: draw it in this SVG `file`")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.torture = time.Duration(*minutes) * time.Minute
	if *short {
		o.rounds, o.duration, o.events, o.limit, o.keys = 1, 100*time.Millisecond, 5000, 2*time.Second, 1000
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, fmt.Errorf("-only: %w", err)
	}
	if *names != "" {
		o.sections = strings.Split(*names, ",")
	}
	for _, name := range o.sections {
		if !slices.Contains(known, name) {
			return o, fmt.Errorf("unknown section %q: one of %s", name, strings.Join(known, ", "))
		}
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.rounds <= 0 || *minutes <= 0 || o.rate <= 0:
		return o, errors.New("-rounds, -minutes and -rate must be more than 0")
	case o.postgres == "" && o.compare == "":
		return o, errors.New("OUTBOX_TEST_POSTGRES names no server: run `make bench`, or " +
			"`eval \"$(SERVICES_DURABLE=1 scripts/services up postgres)\"` first")
	}
	return o, nil
}

// measure runs the sections, and writes the files that the options name.
func measure(ctx context.Context, opts options, stdout, stderr io.Writer) (report *Report, err error) {
	if opts.cpuProfile != "" {
		f, err := os.Create(opts.cpuProfile)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return nil, err
		}
		defer pprof.StopCPUProfile()
	}
	e, err := openEnv(ctx, opts, stderr)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	report = &Report{Date: time.Now().UTC().Format(time.DateOnly), Machine: e.machine, Rounds: opts.rounds}
	fmt.Fprintln(stdout, report.line(""))
	if !e.durable {
		fmt.Fprintln(stdout, "WARNING: this server does not sync commits: times mean nothing, and ratios little. Use "+
			"`make bench`.")
	}
	for _, s := range sections {
		if named := slices.Contains(opts.sections, s.name); !named && (len(opts.sections) > 0 || s.long) {
			continue
		}
		e.section = &Section{Name: s.name}
		if err := s.run(ctx, e); err != nil {
			return nil, fmt.Errorf("section %s: %w", s.name, err)
		}
		report.Sections = append(report.Sections, e.section)
		fmt.Fprintf(stdout, "\n## %s\n\n%s", s.name, e.section.markdown())
	}
	return report, report.save(opts)
}
