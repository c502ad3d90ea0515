package walrelay

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	tick        = 100 * time.Millisecond // the longest time in which a confirmation or an end is not noticed
	statusEvery = time.Second            // this process reports to the server at least that often
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
	// timeline is that of the server. Positions in the log mean nothing on a later one.
	timeline int32
	start    pglogrepl.LSN

	repairTx *repairRows // the events of a repair; nil: there is none

	confirmed  atomic.Uint64 // the position to confirm to the server
	unread     pglogrepl.LSN // the commit of the transaction that is being read
	number     int           // events in the transaction
	relations  map[uint32]*relation
	held       *pglogrepl.BeginMessage // of a transaction that may still run for others; nothing is read meanwhile
	looks      int                     // at held, in vain
	ended      snapshot
	syncing    atomic.Bool // the server lets COMMIT wait for standbys
	leave      atomic.Bool // the connection to the log is to be closed
	lastStatus time.Time
	notice     string // the latest warning of the server that was logged
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
	spill := &sqlSpiller{db: s.db, slot: s.cfg.Slot, epoch: s.epoch, timeline: s.timeline, skipDead: s.repo.skipDead}
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
	part(keeping, &kept, s.watchStandbys)
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
				"next_try", wait, "error", err)
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

// signals wake the goroutines that wait for the window. A signal that nobody has taken yet stands
// for all later ones of its kind. The zero value wakes nobody; under the mutex of window, except
// for receiving from the channels.
type signals struct {
	room  chan struct{} // there is room again
	work  chan struct{} // there is something to ask the table
	ready chan struct{} // there is something to claim

	entering bool // an event of the log is being entered, and more may be at hand
	unsaid   int  // events that were entered since ready was signalled
}

func newSignals() signals {
	return signals{room: make(chan struct{}, 1), work: make(chan struct{}, 1), ready: make(chan struct{}, 1)}
}

// mostUnsaid is how many events are entered before the relay is woken, while more are at hand.
const mostUnsaid = 64

// claimable wakes the relay, because there is something to claim. While the reader enters events of
// the log, it wakes the relay only if there are many; flush does it for the rest.
func (s *signals) claimable() {
	if s.entering {
		if s.unsaid++; s.unsaid < mostUnsaid {
			return
		}
	}
	s.unsaid = 0
	signal(s.ready)
}

// flush wakes the relay if events were entered since it was last woken.
func (s *signals) flush() {
	if s.unsaid > 0 {
		s.unsaid = 0
		signal(s.ready)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// gatherer reads ahead from the server. The server sends each message on its own, and a reader that
// is faster would be woken for each of them, three times an event. So while messages come one after
// the other it waits a moment, and then reads many at once. A message that comes alone does not
// wait.
type gatherer struct {
	from    io.Reader
	buf     []byte
	at, end int
	idle    func() // called before it may wait for the server; may be nil

	since time.Time // when the count of reads began
	reads int       // how many reads waited for the server
}

const (
	gatherBuffer = 128 << 10
	gatherSpan   = 4 * time.Millisecond
	gatherReads  = 24      // reads in a span: as many as eight transactions with one event need
	gatherMuch   = 2 << 10 // bytes that count as one more read
	gatherPause  = time.Millisecond
)

func newGatherer(from io.Reader) *gatherer {
	return &gatherer{from: from, buf: make([]byte, gatherBuffer)}
}

// Read implements io.Reader.
func (g *gatherer) Read(p []byte) (n int, err error) {
	if g.at == g.end {
		if g.idle != nil {
			g.idle()
		}
		g.pause(time.Now())
		if len(p) >= len(g.buf) {
			return g.from.Read(p)
		}
		g.at = 0
		if g.end, err = g.from.Read(g.buf); g.end == 0 {
			return 0, err
		} // an error beside bytes comes again with the next read
		g.reads += g.end / gatherMuch
	}
	n = copy(p, g.buf[g.at:g.end])
	g.at += n
	return n, nil
}

// pause waits while the server sends much.
func (g *gatherer) pause(now time.Time) {
	if now.Sub(g.since) >= gatherSpan {
		g.since, g.reads = now, 0
	}
	if g.reads++; g.reads > gatherReads {
		time.Sleep(gatherPause)
	}
}
