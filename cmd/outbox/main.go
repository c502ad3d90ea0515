// Command outbox operates the tables of ormoutbox: it creates and checks them, shows waiting and
// dead events, repairs the tables, and runs the relay as a process of its own. `outbox help` lists
// the commands, and docs/cli.md has them all.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/ormoutbox/ormoutbox/cmd/outbox/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := cli.Run(ctx, os.Args[1:], cli.System())
	stop()
	os.Exit(code) //nolint:forbidigo // the exit codes of a command line are its answer
}
