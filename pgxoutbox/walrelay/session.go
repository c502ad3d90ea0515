package walrelay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	tick        = 100 * time.Millisecond // the longest time in which a confirmation or an end is not noticed
	statusEvery = time.Second            // the server hears of this process at least that often
	askBatch    = 500                    // events that ask the table at once
)

// session is the time in which this process has the slot. It survives a lost connection, unless
// another process takes the slot meanwhile.
type session struct {
	*Relay
	window *window
	conn   *pgconn.PgConn // used by one goroutine
	system string
	epoch  int64
	start  pglogrepl.LSN

	repairTx *repairRows // what a repair reads; nil: there is none

	confirmed  atomic.Uint64 // what the server is told
	unread     pglogrepl.LSN // the commit of the transaction that is being read
	number     int           // events of it
	relations  map[uint32]*relation
	held       *pglogrepl.BeginMessage // of a transaction that may still run for others; nothing is read meanwhile
	looks      int                     // at held, in vain
	ended      snapshot
	syncing    atomic.Bool // the server lets COMMIT wait for standbys
	lastStatus time.Time
}

func (s *session) close() {
	if s.conn != nil {
		closeConn(s.conn)
	}
	if s.repairTx != nil {
		s.repairTx.close()
	}
}

// run publishes until ctx ends or the slot is lost.
func (s *session) run(ctx context.Context) error {
	defer s.close()
	spill := &sqlSpiller{db: s.db, slot: s.cfg.Slot, epoch: s.epoch, skipDead: s.repo.skipDead}
	src := &source{window: s.window, spiller: spill}
	s.repo.source.Store(src)
	s.repo.hurry()
	s.session.Store(s)
	defer func() {
		s.window.shut()
		s.session.CompareAndSwap(s, nil)
		s.repo.source.Store(nil)
	}()
	publish, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// reading goes on until the last events are confirmed
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()

	keeping, endKeeping := context.WithCancel(work)
	defer endKeeping()

	var wg, kept sync.WaitGroup
	part := func(ctx context.Context, wg *sync.WaitGroup, fn func(context.Context) error) {
		wg.Go(func() {
			if err := fn(ctx); err != nil && work.Err() == nil {
				s.window.shut()
				stop(err)
			}
		})
	}
	k := &keeper{session: s}
	part(keeping, &kept, k.run)
	part(work, &wg, s.read)
	part(work, &wg, func(ctx context.Context) error { return s.askTable(ctx, src) })
	if s.repairTx != nil {
		part(work, &wg, s.readRepair)
	}
	err := s.outbox.Run(publish)
	lost := context.Cause(publish)
	if err == nil && ctx.Err() == nil && lost == nil {
		err = errors.New("walrelay: the outbox has ended")
	}
	endKeeping()
	kept.Wait()
	if !errors.Is(lost, errNotLeading) {
		k.last()
	}
	end()
	wg.Wait()
	if err == nil && ctx.Err() == nil {
		err = lost
	}
	return err
}

// askTable asks the table about events of keys that have open rows, until ctx ends.
func (s *session) askTable(ctx context.Context, of *source) error {
	ticker := time.NewTicker(statusEvery)
	defer ticker.Stop()
	for failures := 0; ; {
		asked, spilled, err := of.ask(ctx, askBatch)
		switch {
		case ctx.Err() != nil || errors.Is(err, errNotLeading):
			return err
		case err != nil:
			failures++
			wait := min(leastPause<<min(failures-1, 10), mostPause)
			level := slog.LevelWarn
			if failures == 1 && sqlState(err) == stateDuplicate {
				level = slog.LevelDebug // the log has a commit a moment before other transactions see its rows
			}
			s.log.Log(ctx, level, "outbox: events cannot be put into the table", "failures", failures,
				"next_try", wait, "err", err)
			sleep(ctx, wait)
			continue
		case spilled:
			s.repo.hurry()
		}
		if failures = 0; asked > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.window.signals.work:
		case <-ticker.C:
		}
	}
}
