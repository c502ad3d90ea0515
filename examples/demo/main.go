// Command demo shows that an outbox loses nothing when its process is killed.
//
// It starts itself again as a child: a shop that takes orders through GORM, relays their events
// through a Go channel and consumes them. The parent kills the child with SIGKILL at random moments
// in the middle of its work and starts it again, several times. When all orders are taken and
// delivered, it compares two files: the orders that were committed, and the ledger in which the
// consumer wrote every event before it acknowledged it.
//
//	go run ./examples/demo            # from the root; or: make demo ORDERS=5000 KILLS=10
//	go run ./examples/demo -json      # for machines
//
// It exits with 0 when the ledger balances, with 1 when it does not or after another error, and
// with 2 when it was called wrongly. It needs no server and deletes its files at the end. When it
// fails, it keeps them and prints where they are.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"
)

const (
	exitBalanced = 0
	exitFailed   = 1
	exitUsage    = 2
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == childCommand {
		os.Exit(childMain(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the parent: the whole demonstration.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	opts, err := parseOptions(args, getenv, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitBalanced
	case err != nil:
		fmt.Fprintln(stderr, "demo:", err)
		return exitUsage
	}
	ctx, cancel := context.WithTimeoutCause(ctx, opts.limit,
		fmt.Errorf("not finished after %s (see -timeout)", opts.limit))
	defer cancel()

	progress := stdout
	if opts.json {
		progress = stderr
	}
	result, dir, err := demonstrate(ctx, opts, &screen{out: progress, live: isTerminal(progress)})
	if err == nil && result.Balanced {
		err = os.RemoveAll(dir)
	}
	result.OK = result.Balanced && err == nil
	if !result.OK {
		result.Files = dir
		if err != nil {
			result.Problems = append(result.Problems, err.Error())
		}
	}
	if opts.json {
		printJSON(stdout, result)
	} else {
		printLedger(stdout, result)
	}
	if !result.OK {
		return exitFailed
	}
	return exitBalanced
}

// demonstrate kills and restarts the shop until it ends by itself, and then audits its books. dir
// is the folder of its files, or empty if there are none.
func demonstrate(ctx context.Context, opts options, out *screen) (result result, dir string, err error) {
	result.Asked, result.killsAsked, result.Seed = opts.orders, opts.kills, opts.seed
	start := time.Now()
	defer func() {
		result.Seconds = time.Since(start).Round(time.Millisecond).Seconds()
		if err != nil && ctx.Err() != nil { // then the end of the context is the cause, whatever the error
			err = fmt.Errorf("stopped: %w", context.Cause(ctx))
		}
	}()

	dir, err = os.MkdirTemp("", "outbox-demo-")
	if err != nil {
		return result, "", err
	}
	s, err := newSupervisor(dir, opts, out)
	if err != nil {
		return result, dir, err
	}
	err = s.run(ctx)
	result.Kills, result.RolledBack, result.Hot, result.Cold = s.kills, s.reported.rolledBack, s.reported.hot,
		s.reported.cold
	if err != nil {
		return result, dir, err
	}
	if err := opts.tamper.afterwards(ctx, dir); err != nil {
		return result, dir, err
	}
	return result, dir, result.audit(ctx, dir)
}
