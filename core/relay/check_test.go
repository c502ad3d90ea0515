package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// checked is a table whose presence can be checked.
type checked struct {
	core.Repository
	check func() error
	down  error
}

func (c *checked) Check(context.Context) error { return c.check() }

func (c *checked) ListDead(ctx context.Context, q core.DeadQuery) ([]core.DeadEvent, error) {
	if c.down != nil {
		return nil, c.down
	}
	return c.Repository.ListDead(ctx, q)
}

// logLines collects the lines that are logged.
type logLines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logLines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), part)
}

func (l *logLines) has(parts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(line, p)
		}
		if all {
			return true
		}
	}
	return false
}

// Run checks the tables before it works, and logs its error.
func TestRunChecksTables(t *testing.T) {
	missing := fmt.Errorf("schema drift: %w: table outbox_event is missing", core.ErrNoTables)
	differ := fmt.Errorf("schema drift: %w: index x is missing", core.ErrTablesDiffer)
	away := errors.New("connection refused")
	for _, c := range []struct {
		name   string
		errs   []error // results of the first checks
		down   error
		want   error
		logged []string
	}{
		{"tables are there", nil, nil, nil, nil},
		{
			"no tables",
			[]error{missing},
			nil, core.ErrNoTables,
			[]string{"level=ERROR", "the relay has ended", "table outbox_event is missing"},
		},
		{
			"an index is missing",
			[]error{differ},
			nil, nil,
			[]string{"level=ERROR", "not as they should be", "index x is missing"},
		},
		{
			"the database comes later",
			[]error{away, away, away},
			away, nil,
			[]string{"level=WARN", "waits for the database", "connection refused"},
		},
		{
			"the database comes later, without tables",
			[]error{away, away, missing},
			away, core.ErrNoTables,
			[]string{"level=ERROR", "table outbox_event is missing"},
		},
		{"the tables cannot be asked for", []error{away}, nil, nil, []string{"level=WARN", "cannot be checked"}},
	} {
		bubble(t, c.name, func(t *testing.T) {
			var log logLines
			repo, pub, n := outboxtest.NewRepository(), &outboxtest.Publisher{}, 0
			table := &checked{Repository: repo, down: c.down, check: func() error {
				if n++; n > len(c.errs) {
					return nil
				}
				return c.errs[n-1]
			}}
			ob := newOutbox(t, core.Config{
				Repository: table, Publisher: pub,
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- ob.Run(ctx) }()
			must(t, publishTx(ctx, repo, ob, core.Event{Type: "a"}))
			time.Sleep(30 * time.Second)
			if n := len(pub.Accepted()); (n == 1) != (c.want == nil) {
				t.Errorf("%d events were published", n)
			}
			cancel()
			wantErr(t, <-done, c.want, "Run")
			if !log.has(c.logged...) && len(c.logged) > 0 || len(c.logged) == 0 && log.has("level=") {
				t.Errorf("logged %s", log.buf.String())
			}
		})
	}
}

// dangerous is a table in a database with a danger, or one that cannot be asked for dangers.
type dangerous struct {
	core.Repository
	err error
}

func (d dangerous) Warnings(context.Context) ([]core.Warning, error) {
	if d.err != nil {
		return nil, d.err
	}
	return []core.Warning{{Found: "a node of a cluster", Cause: "why", Fix: "what to do"}}, nil
}

// Run logs the dangers that the table knows, and works.
func TestRunWarns(t *testing.T) {
	for _, c := range []struct {
		err    error
		logged []string
	}{
		{nil, []string{"level=WARN", "a node of a cluster", "cause=why", `fix="what to do"`}},
		{errors.New("no right"), []string{"level=WARN", "cannot be asked for dangers", "no right"}},
	} {
		bubble(t, c.logged[1], func(t *testing.T) {
			var log logLines
			repo, pub := outboxtest.NewRepository(), &outboxtest.Publisher{}
			ob := newOutbox(t, core.Config{
				Repository: dangerous{repo, c.err}, Publisher: pub, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- ob.Run(ctx) }()
			must(t, publishTx(ctx, repo, ob, core.Event{Type: "a"}))
			time.Sleep(30 * time.Second)
			cancel()
			wantErr(t, <-done, nil, "Run")
			if len(pub.Accepted()) != 1 || !log.has(c.logged...) || log.count("level=") != 1 {
				t.Errorf("%d events published, logged %s", len(pub.Accepted()), log.buf.String())
			}
		})
	}
}

// Run logs its error by default, because most services call it in a goroutine.
func TestRunTellsWhatItReturns(t *testing.T) {
	var log logLines
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	ob := newOutbox(t, core.Config{Repository: outboxtest.NewRepository()})
	wantErr(t, ob.Run(t.Context()), core.ErrNoPublisher, "Run")
	if !log.has("level=ERROR", "no publisher configured") {
		t.Errorf("logged %q", log.buf.String())
	}
}
