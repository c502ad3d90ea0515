// Command peers runs test suites of others on our adapters and pools: those of GORM, Bun and Ent, of
// pgx's stdlib and go-sql-driver/mysql, and of sqlx. What these suites assert, users rely on. So a
// suite must pass the same tests with the outbox as it passes without it.
//
//	make test-peers PEERS=DIR                                # starts the servers
//	go run ./integration/peers -suite GORM -database sqlite  # one, on servers of the environment
//	go run ./integration/peers -share 3/10                   # some, by turns
//	go run ./integration/peers -get                          # only gets the sources
//
// DIR has archives of the sources of the ORMs. If an archive is missing, git fetches the sources.
// PEERS=none leaves the ORMs out. The others are in the zips of their modules. The command unpacks
// them into .peers and puts small files of ours, those below suites, between the suite and its
// database.
//
// Each suite of an ORM runs three times on each database: plain, with an OnAll function that returns
// nothing for every model, and with one that returns one event for each row. The others run plain
// and with each connector. Each run has a database of its own. A run that differs is repeated twice,
// each time beside a plain one. A test counts if it differs each time.
//
// The command exits with 0 if nothing differs, with 1 if something does or a suite cannot be run,
// and with 2 if it was called wrongly.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	exitSame    = 0
	exitDiffers = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

type options struct {
	root, dir       string
	archives        string
	suite, database string
	share           share
	limit           time.Duration
	get, list       bool
}

// share is one of several parts of the pairs, as of 3/10.
type share struct{ k, n int }

// Set parses the flag.
func (s *share) Set(text string) error {
	if _, err := fmt.Sscanf(text, "%d/%d", &s.k, &s.n); err != nil || s.k < 1 || s.k > s.n {
		return errors.New("want one of N, such as 3/10")
	}
	return nil
}

func (s *share) String() string { return fmt.Sprintf("%d/%d", s.k, s.n) }

// pair is a suite on one of its databases.
type pair struct {
	suite    *suite
	database database
}

func (p pair) String() string { return p.suite.name + " on " + p.database.name }

// run is the whole program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opts, err := parseOptions(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitSame
	case err != nil:
		fmt.Fprintln(stderr, "peers:", err)
		return exitUsage
	}
	pairs := choose(opts)
	if len(pairs) == 0 && opts.share.n == 1 {
		fmt.Fprintln(stderr, "peers: no such suite and database: -list names them")
		return exitUsage
	}
	if opts.list {
		for _, p := range pairs {
			fmt.Fprintln(stdout, p)
		}
		return exitSame
	}
	same, failed := true, []string(nil)
	var results []result
	w := &workshop{root: opts.root, dir: opts.dir, archives: opts.archives}
	for _, p := range pairs {
		r, err := judge(ctx, w, p, opts, stderr)
		if err != nil {
			same = false
			if !slices.Contains(failed, err.Error()) { // a suite that cannot be built
				fmt.Fprintf(stderr, "peers: %s: %v\n", p, err)
			}
			failed = append(failed, err.Error())
		}
		if r.pair.suite != nil {
			results = append(results, r)
			same = same && len(r.differing) == 0
		}
		if ctx.Err() != nil {
			break
		}
	}
	if !opts.get {
		report(stdout, results)
	}
	if !same {
		return exitDiffers
	}
	return exitSame
}

// judge runs a pair, or gets what it needs.
func judge(ctx context.Context, w *workshop, p pair, opts options, stderr io.Writer) (result, error) {
	if opts.get {
		_, err := w.sources(ctx, p.suite)
		return result{}, err
	}
	program, err := w.program(ctx, p.suite)
	if err != nil {
		return result{}, err
	}
	s := session{pair: p, program: program, limit: opts.limit, logs: filepath.Join(w.dir, "logs"), progress: stderr}
	return s.compare(ctx)
}

// choose returns the pairs of the options. A suite that waits is run only if it is named.
func choose(opts options) []pair {
	var pairs []pair
	for i := range suites {
		s := &suites[i]
		if opts.suite == "" && s.waits != "" || opts.suite != "" && !strings.EqualFold(opts.suite, s.name) {
			continue
		}
		if opts.archives == "none" && s.released == "" {
			continue
		}
		for _, d := range s.databases {
			if opts.database == "" || opts.database == d.name {
				pairs = append(pairs, pair{s, d})
			}
		}
	}
	n := -1
	return slices.DeleteFunc(pairs, func(pair) bool { n++; return n%opts.share.n != opts.share.k-1 })
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	opts := options{share: share{1, 1}}
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&opts.archives, "archives", "",
		"`folder` with archives of the ORMs' sources (default: git fetches them), none leaves the ORMs out")
	flags.StringVar(&opts.root, "root", "", "`folder` of the repository (default: where go.work is)")
	flags.StringVar(&opts.dir, "dir", "", "`folder` that keeps sources and logs (default: .peers in the repository)")
	flags.StringVar(&opts.suite, "suite", "", "run only this suite: GORM, Bun, Ent, pgx, MySQL or sqlx")
	flags.StringVar(&opts.database, "database", "", "run only on this database, such as sqlite")
	flags.Var(&opts.share, "share", "run one `part` of the suites, such as 3/10")
	flags.DurationVar(&opts.limit, "timeout", 10*time.Minute, "how long one run of a suite may take")
	flags.BoolVar(&opts.get, "get", false, "get the sources of the suites and run none")
	flags.BoolVar(&opts.list, "list", false, "list the suites with their databases and run none")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	var err error
	if opts.root == "" {
		opts.root, err = findRoot()
	} else {
		opts.root, err = filepath.Abs(opts.root)
	}
	if err != nil {
		return options{}, err
	}
	if opts.dir == "" {
		opts.dir = filepath.Join(opts.root, ".peers")
	}
	opts.dir, err = filepath.Abs(opts.dir)
	return opts, err
}

// findRoot returns the nearest folder above the current one that has a go.work.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.work here or above: -root names the repository")
		}
		dir = parent
	}
}
