package crash

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

const maxAhead = 50 // events

const childVariable = "OUTBOX_CRASH_CHILD"

// Child runs this process as a child if a parent started it as one, and does not return then.
// TestMain calls it first.
func Child() {
	text, ok := os.LookupEnv(childVariable)
	if !ok {
		return
	}
	var s Spec
	err := json.Unmarshal([]byte(text), &s)
	if err == nil {
		err = s.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(3)
	}
	os.Exit(0)
}

// run writes and relays until the parent closes the child's input. The line "quiet" there ends only
// the writing.
func (s Spec) run() error {
	client := NewClient(s.Ledger, s.Name)
	t := &trap{point: s.Point, warm: int64(s.Warm), after: int64(s.After), seed: s.Seed}
	b := &batch{trap: t}
	begin, repo, err := s.open(t)
	if err != nil {
		return err
	}
	sink, err := s.sink(client)
	if err != nil {
		return err
	}
	cold := &coldRows{}
	wrapped := &repository{Repository: repo, trap: t, batch: b, cold: cold}
	out := &publisher{Publisher: sink, trap: t, batch: b, cold: cold}
	if s.Mutant == MarkFirst {
		out.markFirst = wrapped
	}
	cfg := s.Config(wrapped, out.asItIs())
	cfg.Observer = &core.Observer{
		Fenced:   func(_ string, rows int) { client.Note("fenced", rows) },
		LateAcks: func(rows int) { client.Note("late acks", rows) },
		FellBack: func(_ string, reason core.FallbackReason) {
			if reason == core.FallbackLost {
				client.Note("lost leases", 1)
			}
		},
	}
	ob, err := core.New(cfg)
	if err != nil {
		return err
	}

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	writing, quiet := context.WithCancel(ctx)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			quiet()
		}
		stop()
	}()
	var wg sync.WaitGroup
	problems := make(chan error, s.Writers+2)
	if s.Sample > 0 {
		go s.report(ctx, client)
	}
	if s.Consumer != "" {
		wg.Go(func() {
			if err := s.consume(ctx, client); err != nil {
				problems <- err
				stop()
			}
		})
	}
	if s.Relay {
		wg.Go(func() {
			if err := ob.Run(ctx); err != nil {
				problems <- err
			}
		})
	}
	// The backlog stays small, so that each process can finish the events that earlier ones left.
	// If this process has acknowledged too few, the table says whether others have published the
	// rest.
	var others atomic.Int64
	if s.Consumer != "" { // many lives follow each other, and each looks at the backlog before it writes
		others.Store(-maxAhead - 1)
	}
	ahead := func() bool {
		if t.written.Load() <= t.acks.Load()+others.Load()+maxAhead {
			return false
		}
		backlog, err := repo.Backlog(ctx, 10*maxAhead)
		if err != nil || backlog.Pending > maxAhead {
			return true
		}
		others.Store(t.written.Load() - t.acks.Load() - backlog.Pending)
		return false
	}
	w := &Writer{
		Begin: begin, Outbox: ob, Topic: s.Topic, Keys: s.Keys, Pause: s.Pause,
		Wait: ahead, Wrote: func(n int) { t.written.Add(int64(n)) },
	}
	if s.Mutant == PublishEarly {
		w.early = sink
	}
	var writers sync.WaitGroup
	for i := range s.Writers {
		writers.Go(func() {
			if err := w.Write(writing, rand.New(rand.NewPCG(s.Seed, uint64(i))), s.Limit); err != nil {
				problems <- err
				stop()
			}
		})
	}
	client.Note("started", 1)
	writers.Wait()
	client.Note("quiet", 1)
	<-ctx.Done()
	wg.Wait()
	close(problems)
	return <-problems
}

// open returns the function that begins the writers' transactions, and the tables for the relay.
func (s Spec) open(t *trap) (begin func(context.Context) (Transaction, error), repo core.Repository, err error) {
	if s.PGX {
		return openPGX(s.DSN, t)
	}
	business, err := openTrapped(s.Dialect, s.DSN, t)
	if err != nil {
		return nil, nil, err
	}
	plain, err := Open(s.Dialect, s.DSN)
	if err != nil {
		return nil, nil, err
	}
	repo, err = sqloutbox.New(plain, sqloutbox.Config{Dialect: s.Dialect})
	return BeginSQL(business, s.Dialect), repo, err
}

// Transaction is a transaction of a Writer.
type Transaction interface {
	core.Tx
	Commit() error
	Rollback() error // after the end it does nothing, or returns sql.ErrTxDone
}

// BeginSQL is the Begin of a Writer on a pool of database/sql.
func BeginSQL(db *sql.DB, d core.Dialect) func(context.Context) (Transaction, error) {
	return func(ctx context.Context) (Transaction, error) { return sqltx.Begin(ctx, db, nil, d) }
}

// Writer writes business data with events.
type Writer struct {
	Begin   func(context.Context) (Transaction, error)
	Outbox  *core.Outbox
	Topic   string
	Keys    int
	Ordered bool          // no unordered events
	Commits bool          // no rollbacks
	Pause   time.Duration // on average, before each transaction
	Wait    func() bool   // holds the next transaction back while it is true; may be nil
	Wrote   func(n int)   // gets the number of committed events; may be nil

	early core.Publisher // only in the mutant that publishes before the commit
}

// Write runs transactions until ctx ends, or until it has run limit of them; 0 is no limit. Each
// transaction has one to three events. Some roll back.
func (w *Writer) Write(ctx context.Context, r *rand.Rand, limit int) error {
	failures := 0
	for n := 0; (limit == 0 || n < limit) && ctx.Err() == nil; n++ {
		time.Sleep(time.Duration(r.IntN(int(2*w.Pause) + 1)))
		if w.Wait != nil && w.Wait() {
			n--
			continue
		}
		err := w.transaction(ctx, r)
		switch {
		case err == nil:
			failures = 0
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the child was told to stop
		default: // such as a deadlock; nothing was committed
			if failures++; failures > 20 {
				return fmt.Errorf("cannot write: %w", err)
			}
			time.Sleep(time.Duration(r.IntN(2000*failures)) * time.Microsecond)
		}
	}
	return nil
}

func (w *Writer) transaction(ctx context.Context, r *rand.Rand) (err error) {
	tx, err := w.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if e := tx.Rollback(); e != nil && !errors.Is(e, sql.ErrTxDone) && err == nil {
			err = e
		}
	}()
	k := key(r.IntN(w.Keys))
	events := make([]core.Event, 1+r.IntN(3))
	for i := range events {
		events[i] = core.Event{ID: core.NewEventID(), Type: "written", Topic: w.Topic, Key: k, Payload: []byte("{}")}
		events[i].Unordered = !w.Ordered && r.IntN(4) == 0
	}
	if _, err := w.Outbox.Publish(ctx, tx, events...); err != nil {
		return err
	}
	for _, e := range events {
		if err := writeFact(ctx, tx, e); err != nil {
			return err
		}
		if w.early != nil {
			if err := w.early.Publish(ctx, core.Delivery{Event: e}); err != nil {
				return err
			}
		}
	}
	if !w.Commits && r.IntN(10) == 0 {
		return tx.Rollback()
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	if w.Wrote != nil {
		w.Wrote(len(events))
	}
	return nil
}
