// Command bench measures the outbox and its alternatives, side by side in one run, on PostgreSQL.
//
// Each section has a table of competitors. They take turns inside each round, and each round starts
// with another one, so that a slow moment of the machine hits all of them. A figure is the median
// over the rounds, and a ratio is the median of the ratios within each round. Every competitor's
// work is checked: an event that is lost or left open, or a duplicate, is an error.
//
//	make bench    # from the root: starts PostgreSQL with its stock durability
//	make bench BENCHFLAGS='-sections drain -rounds 7'      # see -h
//
// It exits with 0 when every section ran without an error, whatever the figures are, with 1 after
// an error, and with 2 when it was called wrongly. It works in a database of its own, which it
// drops. docs/benchmarks.md says how to read the tables.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"time"
)

const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
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
	}
	if opts.compare != "" {
		err = compare(opts.compare, stdout)
	} else {
		err = measure(ctx, opts, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitFailed
	}
	return exitDone
}

// measure runs the sections, and writes the files that the options name.
func measure(ctx context.Context, opts options, stdout, stderr io.Writer) (err error) {
	if opts.cpuProfile != "" {
		f, err := os.Create(opts.cpuProfile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	e, err := openEnv(ctx, opts, newProgress(stderr))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()

	report := &Report{Started: time.Now().UTC().Truncate(time.Second), Options: opts.Shown, Machine: e.machine}
	report.header(stdout)
	for _, s := range sections {
		if !opts.wants(s.name) {
			continue
		}
		start := time.Now()
		section := &Section{Name: s.name, Title: s.title}
		if err := s.run(ctx, e, section); err != nil {
			e.progress.clear()
			return fmt.Errorf("section %s: %w", s.name, err)
		}
		e.progress.clear()
		section.Seconds = time.Since(start).Round(100 * time.Millisecond).Seconds()
		report.Sections = append(report.Sections, section)
		section.text(stdout)
	}
	report.Seconds = time.Since(report.Started).Round(time.Second).Seconds()
	report.summary(stdout)
	return report.save(opts)
}

// sections are run in this order.
var sections = []struct {
	name, title string
	run         func(ctx context.Context, e *env, s *Section) error
}{
	{"producer", "Producer: what an event costs its transaction", runProducer},
	{"network", "Network: producers farther away from the database", runNetwork},
	{"hotkey", "Hot key: all producers use one key", runHotKey},
	{"drain", "Drain: how fast a relay empties a backlog", runDrain},
	{"latency", "Latency: from commit to publish", runLatency},
	{"wake", "Wake-up: publishing in one process, relaying in another", runWake},
	{"steady", "Steady state: producing and relaying in one process", runSteady},
	{"history", "History: draining beside published rows", runHistory},
	{"backlog", "Backlog: draining a large one, and beside an old snapshot", runBacklog},
	{"relays", "Relays: several on one table", runRelays},
	{"engines", "Engines: draining on MariaDB and SQLite", runEngines},
	{"operate", "Operate: what an operator's question costs in a large table", runOperate},
	{"brokers", "Brokers: draining into Kafka and RabbitMQ", runBrokers},
	{"log", "Log: polling, PostgreSQL's log and Debezium, into Kafka", runLog},
	{"inbox", "Inbox: what handling an event once costs its transaction", runInbox},
	{"http", "HTTP: what an Idempotency-Key costs a request", runHTTP},
}
