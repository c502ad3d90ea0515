// Command mutants tests the tests. Each patch below patches breaks one promise of the code. The
// command applies it to a copy of the file it names, builds the tests with that copy in place of
// the file, and requires that the tests which the patch names fail.
//
//	make mutants                                 # all of them, with the test servers up
//	go run ./integration/mutants -run sqloutbox  # some; the servers are those of the environment
//	go run ./integration/mutants -share 3/10     # a tenth, by turns
//	go run ./integration/mutants -list           # what there is
//
// First every named test runs without any patch and has to pass: a test that always fails would
// catch every mutant. The files of the repository stay as they are. README.md says how to write a
// patch.
//
// It exits with 0 when every mutant was caught, with 1 when one was not or could not be tried, and
// with 2 when it was called wrongly.
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
	"regexp"
	"runtime"
	"time"
)

const (
	exitCaught   = 0
	exitSurvived = 1
	exitUsage    = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

type options struct {
	root     string
	only     *regexp.Regexp
	parallel int
	limit    time.Duration
	list     bool
	json     bool
	share    share
	changed  string
	most     int
}

// run is the whole program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opts, err := parseOptions(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitCaught
	case err != nil:
		fmt.Fprintln(stderr, "mutants:", err)
		return exitUsage
	}
	mutants, err := load(opts.root, opts.only)
	if err != nil {
		fmt.Fprintln(stderr, "mutants:", err)
		return exitUsage
	}
	touched, err := touchedSince(ctx, opts.root, opts.changed)
	if err != nil {
		fmt.Fprintln(stderr, "mutants:", err)
		return exitUsage
	}
	all := len(mutants)
	mutants = opts.share.choose(mutants, touched, opts.most)
	if left := all - len(mutants); left > 0 {
		fmt.Fprintf(stderr, "share %s: %d of %d mutants are left out\n", &opts.share, left, all)
	}
	var out reporter = &text{w: stdout}
	if opts.json {
		out = &lines{w: stdout}
	}
	if opts.list {
		out.list(mutants)
		return exitCaught
	}
	survived, err := hunt(ctx, opts, mutants, out)
	if err != nil {
		fmt.Fprintln(stderr, "mutants:", err)
		return exitSurvived
	}
	if survived > 0 {
		return exitSurvived
	}
	return exitCaught
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var opts options
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(stderr)
	pattern := flags.String("run", "", "try only mutants whose name matches this regular `expression`")
	flags.StringVar(&opts.root, "root", "", "`folder` of the repository (default: where go.work is)")
	flags.IntVar(&opts.parallel, "parallel", runtime.GOMAXPROCS(0)+1, "how many mutants are tried at once")
	flags.DurationVar(&opts.limit, "timeout", time.Minute, "how long the tests of one mutant may run")
	opts.share = share{1, 1}
	flags.Var(&opts.share, "share", "try one `part` of the mutants, such as 3/10")
	flags.StringVar(&opts.changed, "changed", "",
		"with -share: try also the mutants of packages that changed since this `commit`")
	flags.IntVar(&opts.most, "most", 50, "with -changed: try at most this `number` of mutants")
	flags.BoolVar(&opts.list, "list", false, "list the mutants and try none")
	flags.BoolVar(&opts.json, "json", false, "write one JSON object for each result")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	switch {
	case flags.NArg() > 0:
		return options{}, fmt.Errorf("unexpected argument %q: -run chooses mutants", flags.Arg(0))
	case opts.parallel < 1:
		return options{}, fmt.Errorf("-parallel %d is less than 1", opts.parallel)
	case opts.limit <= 0:
		return options{}, fmt.Errorf("-timeout %s is not positive", opts.limit)
	}
	var err error
	if opts.only, err = regexp.Compile(*pattern); err != nil {
		return options{}, fmt.Errorf("-run: %w", err)
	}
	if opts.root == "" {
		opts.root, err = findRoot()
	} else {
		opts.root, err = filepath.Abs(opts.root)
	}
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
