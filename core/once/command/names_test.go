package command_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// known is a store of which another program uses every scope.
type known struct {
	*outboxtest.OnceStore
	err   error
	asked []string
}

func (k *known) Register(_ context.Context, scope, _ string) ([]string, error) {
	k.asked = append(k.asked, scope)
	return []string{"example.com/other"}, k.err
}

// Another program that runs commands of the same type is told once. The transaction of a caller may
// hold the only connection, so a command in it registers nothing.
//
//nolint:paralleltest // it replaces the default logger
func TestAnotherProgramOfOneType(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	synctest.Test(t, func(t *testing.T) {
		repo := outboxtest.NewRepository()
		s := &known{OnceStore: repo.OnceStore(), err: errors.New("no table")}
		c := newCommands(t, once.Config{Store: s})
		run := func(typ, key string) {
			t.Helper()
			_, _, err := command.Run(t.Context(), c, command.Command{Type: typ, Key: key},
				func(context.Context) (int, error) { return 1, nil })
			if err != nil {
				t.Error(err)
			}
		}
		inTx := func(ctx context.Context, typ, key string) error {
			_, _, err := command.RunInTx(ctx, c, repo.Transactor(), command.Command{Type: typ, Key: key},
				func(context.Context, core.Tx) (int, error) { return 1, nil })
			return err
		}
		err := repo.Transactor().RunInTx(t.Context(), func(ctx context.Context, _ core.Tx) error {
			_, _, err := command.RunTx(ctx, c, nil, command.Command{Type: "pay", Key: "1"},
				func(context.Context) (int, error) { return 1, nil })
			return errors.Join(err, inTx(ctx, "pay", "2"))
		})
		if err != nil || len(s.asked) != 0 {
			t.Errorf("in a transaction: %v, registered %v", err, s.asked)
		}
		run("pay", "3")
		run("pay", "4")
		time.Sleep(time.Minute) // a store that fails is asked again
		s.err = nil
		run("pay", "5")
		if err := inTx(t.Context(), "ship", "1"); err != nil {
			t.Error(err)
		}
		time.Sleep(13 * time.Hour)
		run("pay", "6")
		pay, ship := once.Scope("command", "pay"), once.Scope("command", "ship")
		if want := []string{pay, pay, ship, pay}; !slices.Equal(s.asked, want) {
			t.Errorf("registered %v, want %v", s.asked, want)
		}
	})
	if text := log.String(); strings.Count(text, "another program") != 2 ||
		strings.Count(text, "scope=command/pay") != 1 || !strings.Contains(text, "other_program=example.com/other") {
		t.Errorf("logged %s", text)
	}
}

// A worker tells of another program when Run begins, before there is an effect.
func TestAnotherProgramIsToldAtTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w, err := command.NewWorker(command.WorkerConfig{
			Store: registrar{newMemory()}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Handlers: map[string]command.Handler{
				"mail": func(context.Context, command.Effect) (string, error) { return "", nil },
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
		if text := log.String(); strings.Count(text, "another program") != 1 ||
			!strings.Contains(text, "channel=mail") {
			t.Errorf("logged %s", text)
		}
	})
}

type registrar struct{ *memory }

func (registrar) Register(context.Context, string, string) ([]string, error) {
	return []string{"example.com/other"}, nil
}
