// Command demo-ui shows the operators' page of a shop that is killed.
//
// It starts itself again as a child: a shop that takes orders through GORM and relays their events.
// The parent kills the child with SIGKILL every few seconds, starts it again, and serves the page.
// In the first 20 seconds of each minute the shop's partner refuses large orders, so a group of
// dead events appears; afterwards it takes them, so that they can be redriven. Mail is down now and
// then.
//
//	go run ./examples/demo-ui                       # from the root; or: make demo-ui
//	go run ./examples/demo-ui -screenshots docs/assets
//
// It needs no server, ends with Ctrl-C, and deletes its files. The page is for everybody who can
// reach the loopback address: nothing in it is real.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"time"
)

// childCommand is the first argument of the program that makes it the shop.
const childCommand = "child"

func main() {
	if len(os.Args) == 3 && os.Args[1] == childCommand {
		signal.Ignore(os.Interrupt) // a terminal sends it to both processes; the parent decides
		if err := openShop(context.Background(), os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "shop:", err)
			os.Exit(1)
		}
		return
	}
	listen := flag.String("listen", "127.0.0.1:8090", "address of the page")
	folder := flag.String("screenshots", "", "take screenshots into this folder, and end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *listen, *folder)
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "demo-ui:", err)
		os.Exit(1)
	}
}

// run serves the page while the shop is killed and started again.
func run(ctx context.Context, listen, folder string) error {
	dir, err := os.MkdirTemp("", "outbox-demo-ui-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	page, err := openPage(ctx, dir, listen)
	if err != nil {
		return err
	}
	defer page.close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cancel(kills(ctx, dir))
	}()
	defer func() { cancel(nil); <-ended }()
	if folder != "" {
		return page.screenshots(ctx, folder)
	}
	fmt.Printf("the page of a shop that is killed again and again: %s\nCtrl-C ends it\n", page.address)
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// life is how long the shop lives between two kills.
const life = 8 * time.Second

// kills runs the shop, and kills it, until ctx ends.
func kills(ctx context.Context, dir string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		short, cancel := context.WithTimeout(ctx, life) // its end is a SIGKILL
		shop := exec.CommandContext(short, exe, childCommand, dir)
		shop.Stderr = os.Stderr
		err := shop.Run()
		killed := short.Err() != nil
		cancel()
		if err != nil && !killed {
			return fmt.Errorf("the shop failed: %w", err)
		}
	}
	return ctx.Err()
}
