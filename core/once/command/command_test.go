package command_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

type order struct {
	ID    string
	Lines []int
}

func newCommands(t *testing.T, keys once.Config) *command.Commands {
	t.Helper()
	c, err := command.New(keys)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var create = command.Command{
	Type: "create-order", Tenant: "acme", Key: command.EventKey("QuoteAccepted", "018f"),
	Input: map[string]int{"a": 1, "b": 2},
}

// forms runs fn for the three ways to run a command.
func forms(t *testing.T, fn func(t *testing.T, run func(cmd command.Command,
	fn func(context.Context) (order, error)) (order, bool, error)),
) {
	t.Helper()
	type work = func(context.Context) (order, error)
	for name, make := range map[string]func(t *testing.T) func(command.Command, work) (order, bool, error){
		"lease": func(t *testing.T) func(command.Command, work) (order, bool, error) {
			c := newCommands(t, once.Config{Store: outboxtest.NewOnceStore()})
			return func(cmd command.Command, fn work) (order, bool, error) {
				return command.Run(t.Context(), c, cmd, fn)
			}
		},
		"transaction in the context": func(t *testing.T) func(command.Command, work) (order, bool, error) {
			repo := outboxtest.NewRepository()
			c := newCommands(t, once.Config{Store: repo.OnceStore()})
			return func(cmd command.Command, fn work) (o order, replayed bool, err error) {
				err = repo.Transactor().RunInTx(t.Context(), func(ctx context.Context, _ core.Tx) (err error) {
					o, replayed, err = command.RunTx(ctx, c, nil, cmd, fn)
					return err
				})
				return o, replayed, err
			}
		},
		"transaction of its own": func(t *testing.T) func(command.Command, work) (order, bool, error) {
			repo := outboxtest.NewRepository()
			c := newCommands(t, once.Config{Store: repo.OnceStore()})
			return func(cmd command.Command, fn work) (order, bool, error) {
				return command.RunInTx(t.Context(), c, repo.Transactor(), cmd,
					func(ctx context.Context, tx core.Tx) (order, error) {
						if tx == nil {
							t.Error("no transaction")
						}
						return fn(ctx)
					})
			}
		},
	} {
		t.Run(name, func(t *testing.T) { fn(t, make(t)) })
	}
}

func TestCommandRunsOnce(t *testing.T) {
	forms(t, func(t *testing.T, run func(command.Command, func(context.Context) (order, error)) (order, bool, error)) {
		runs := 0
		place := func(context.Context) (order, error) {
			runs++
			return order{"o-1", []int{1, 2}}, nil
		}
		failed := errors.New("out of stock")
		if _, _, err := run(create,
			func(context.Context) (order, error) { return order{"no", nil}, failed }); !errors.Is(err, failed) {
			t.Errorf("%v", err)
		}
		for i := range 3 {
			got, replayed, err := run(create, place)
			if err != nil || replayed != (i > 0) || got.ID != "o-1" || len(got.Lines) != 2 {
				t.Errorf("%+v, %t, %v", got, replayed, err)
			}
		}
		if runs != 1 {
			t.Errorf("%d runs", runs)
		}
		other := create
		other.Input = map[string]int{"a": 2}
		if got, _, err := run(other, place); !errors.Is(err, once.ErrFingerprintMismatch) || got.ID != "" {
			t.Errorf("another input: %+v, %v", got, err)
		}
		for _, change := range []func(*command.Command){
			func(c *command.Command) { c.Tenant = "other" }, func(c *command.Command) { c.Type = "other" },
			func(c *command.Command) { c.Key = "other" },
		} {
			other := create
			change(&other)
			if _, replayed, err := run(other, place); err != nil || replayed {
				t.Errorf("%+v: %t, %v", other, replayed, err)
			}
		}
	})
}

func TestCommandRefusals(t *testing.T) {
	repo := outboxtest.NewRepository()
	c := newCommands(t, once.Config{Store: repo.OnceStore()})
	must := func(context.Context) (chan int, error) { t.Error("was run"); return nil, nil }
	ctx := t.Context()
	for name, c := range map[string]struct {
		cmd  command.Command
		want error
	}{
		"no type":                  {command.Command{Key: "k"}, once.ErrInvalidKey},
		"no key":                   {command.Command{Type: "t"}, once.ErrInvalidKey},
		"long key":                 {command.Command{Type: "t", Key: strings.Repeat("k", 256)}, once.ErrInvalidKey},
		"input that is not a JSON": {command.Command{Type: "t", Key: "k", Input: make(chan int)}, command.ErrEncoding},
	} {
		if _, _, err := command.Run(ctx, newCommands(t, once.Config{Store: repo.OnceStore()}), c.cmd,
			must); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := command.RunTx(ctx, c, nil, create, must); !errors.Is(err, core.ErrNoTransaction) {
		t.Errorf("no transaction: %v", err)
	}
	err := repo.Transactor().RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
		_, _, err := command.Run(ctx, c, create, must)
		return err
	})
	if !errors.Is(err, command.ErrInTransaction) {
		t.Errorf("lease form in a transaction: %v", err)
	}
	if _, _, err := command.Run[int](ctx, c, create, nil); err == nil {
		t.Error("a nil function is accepted")
	}
	if _, _, err := command.RunInTx[int](ctx, c, repo.Transactor(), create, nil); err == nil {
		t.Error("a nil function is accepted")
	}
	if _, err := command.New(once.Config{Lease: -1}); err == nil ||
		!strings.Contains(err.Error(), "Store") || !strings.Contains(err.Error(), "Lease") {
		t.Errorf("config: %v", err)
	}

	// If a result cannot be kept, the command fails and its key is free. If a result was kept for
	// another type, the error says so.
	if _, _, err := command.Run(ctx, c, create,
		func(context.Context) (chan int, error) { return make(chan int), nil }); !errors.Is(err, command.ErrEncoding) {
		t.Errorf("result: %v", err)
	}
	if got, _, err := command.Run(ctx, c, create,
		func(context.Context) (string, error) { return "text", nil }); err != nil || got != "text" {
		t.Errorf("%q, %v", got, err)
	}
	if _, replayed, err := command.Run(ctx, c, create,
		func(context.Context) (int, error) { return 1, nil }); !errors.Is(err, command.ErrEncoding) || !replayed {
		t.Errorf("result of another type: %t, %v", replayed, err)
	}
}

// A command whose process died is run again after the lease, unless the policy refuses that.
func TestCommandStalePolicy(t *testing.T) {
	for name, refuse := range map[string]bool{"take over": false, "refuse": true} {
		t.Run(name, func(t *testing.T) {
			store := outboxtest.NewOnceStore()
			key := once.Key{Scope: once.Scope("command", create.Type), Tenant: create.Tenant, ID: create.Key}
			if _, err := store.Acquire(t.Context(),
				once.Request{Key: key, Owner: "died", Lease: time.Minute, TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
			c := newCommands(t, once.Config{Store: store, RefuseStale: refuse, Wait: -1})
			fn := func(context.Context) (int, error) { return 7, nil }
			if _, _, err := command.Run(t.Context(), c, create, fn); !errors.Is(err, once.ErrInProgress) {
				t.Errorf("held: %v", err)
			}
			store.ShiftClock(2 * time.Minute)
			got, _, err := command.Run(t.Context(), c, create, fn)
			if refuse && !errors.Is(err, once.ErrAbandoned) || !refuse && (err != nil || got != 7) {
				t.Errorf("%d, %v", got, err)
			}
		})
	}
}

func TestCommandConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCommands(t, once.Config{Store: outboxtest.NewOnceStore(), Wait: time.Minute})
		var runs, replays atomic.Int64
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				got, replayed, err := command.Run(t.Context(), c, create, func(context.Context) (int64, error) {
					time.Sleep(time.Second)
					return runs.Add(1), nil
				})
				if err != nil || got != 1 {
					t.Errorf("%d, %v", got, err)
				}
				if replayed {
					replays.Add(1)
				}
			})
		}
		wg.Wait()
		if runs.Load() != 1 || replays.Load() != 15 {
			t.Errorf("%d runs, %d replays", runs.Load(), replays.Load())
		}
	})
}
