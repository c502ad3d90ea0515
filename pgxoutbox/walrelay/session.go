package walrelay

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/ormoutbox/ormoutbox/core"
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
			s.log.WarnContext(ctx, "outbox: events cannot be put into the table", "failures", failures,
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
		case <-s.window.work:
		case <-ticker.C:
		}
	}
}

// read reads the log until ctx ends. It connects again when the connection is lost.
func (s *session) read(ctx context.Context) error {
	for failures := 0; ; {
		began := time.Now()
		err := s.stream(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the session ends
		}
		if isFinal(err) {
			return err
		}
		s.window.shut()
		if errors.Is(err, errUnsent) {
			return s.unsent(ctx, err)
		}
		if time.Since(began) > mostPause {
			failures = 0
		}
		s.log.WarnContext(ctx, "outbox: the connection to the log is lost", "err", err)
		for {
			failures++
			sleep(ctx, min(leastPause<<min(failures-1, 10), mostPause))
			err := s.again(ctx)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the session ends
			}
			if isFinal(err) || errors.Is(err, errNotLeading) || errors.Is(err, errRepair) {
				return err
			}
			if failures == 3 {
				s.log.WarnContext(ctx, "outbox: the log cannot be read now", "failures", failures, "err", err)
			}
		}
	}
}

// again connects and takes the slot back, if no other process has had it since.
func (s *session) again(ctx context.Context) error {
	closeConn(s.conn)
	conn, system, err := s.dial(ctx)
	if err != nil {
		return err
	}
	s.conn = conn
	if system != s.system {
		return errRepair
	}
	done, _ := s.window.progress()
	if s.window.isRepairing() {
		done = s.start
	}
	if err := s.startReplication(ctx, conn, done); err != nil {
		return slotError(err)
	}
	b, err := s.db.bookmark(ctx, s.cfg.Slot)
	if err != nil {
		return err
	}
	state, err := s.db.slot(ctx, s.cfg.Slot)
	if err != nil {
		return err
	}
	switch {
	case b == nil || b.epoch != s.epoch:
		return errNotLeading
	case state == nil || state.confirmed > b.confirmed: // it was made again
		return errRepair
	}
	return nil
}

// stream reads the log from one connection.
func (s *session) stream(ctx context.Context) error {
	s.relations, s.unread, s.number = map[uint32]*relation{}, 0, 0
	s.lastStatus = time.Time{}
	s.window.open()
	socket := s.conn.Conn()
	if g, ok := s.conn.CustomData()[gathererOf].(*gatherer); ok {
		g.idle = s.window.flush
	}
	var until time.Time
	for {
		now := time.Now()
		if ctx.Err() != nil {
			return s.status(now)
		}
		if now.Sub(s.lastStatus) >= statusEvery {
			if err := s.status(now); err != nil {
				return err
			}
		}
		if !s.window.hasRoom(now) || s.repairTx != nil && !s.repairTx.read.Load() {
			// The log waits on the server. It hears of this process all the same.
			s.window.flush()
			timer := time.NewTimer(tick)
			select {
			case <-s.window.room:
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
			continue
		}
		if until.Sub(now) < tick/2 {
			until = now.Add(tick)
			if err := socket.SetReadDeadline(until); err != nil {
				return err
			}
		}
		// A context that can end would cost a goroutine for each message.
		msg, err := s.conn.ReceiveMessage(context.Background())
		if pgconn.Timeout(err) {
			until = time.Time{}
			continue
		}
		if err != nil {
			return err
		}
		if err := s.message(msg, now); err != nil {
			return err
		}
	}
}

// status tells the server how far this process is.
func (s *session) status(now time.Time) error {
	s.lastStatus = now
	at := pglogrepl.LSN(s.confirmed.Load())
	return pglogrepl.SendStandbyStatusUpdate(context.Background(), s.conn, pglogrepl.StandbyStatusUpdate{
		WALWritePosition: at, WALFlushPosition: at, WALApplyPosition: at, ClientTime: now,
	})
}

// errUnsent says that the publication was missing when events committed. The server reads the log
// with the catalogue of that time, so it never sends them, although the publication may be there
// again.
var errUnsent = errors.New("walrelay: events committed without their publication, and the server does not send them")

// unsent makes the next look repair the slot, so that the events come from the table.
func (s *session) unsent(ctx context.Context, why error) error {
	if err := s.mayRepair(ErrSlotLost, why.Error()); err != nil {
		return err
	}
	n, err := s.db.exec(ctx, "UPDATE {log} SET repairing = true WHERE slot = $1::text AND epoch = $2::bigint",
		s.cfg.Slot, s.epoch)
	switch {
	case err != nil:
		return err
	case n == 0:
		return errNotLeading
	}
	return fmt.Errorf("%w: %w", errRepair, why)
}

// message takes a message of the server.
func (s *session) message(msg pgproto3.BackendMessage, now time.Time) error {
	var data []byte
	switch m := msg.(type) {
	case *pgproto3.CopyData:
		data = m.Data
	case *pgproto3.ErrorResponse:
		err := pgconn.ErrorResponseToPgError(m)
		if err.Code == stateNoObject { // before PostgreSQL 18
			return fmt.Errorf("%w: %w", errUnsent, err)
		}
		return slotError(err)
	case *pgproto3.NoticeResponse:
		if m.Code == stateNotUsable { // from PostgreSQL 18 on, which goes on without the events
			return fmt.Errorf("%w: %s", errUnsent, m.Message)
		}
		return nil
	case *pgproto3.CopyDone:
		return errors.New("walrelay: the server has ended the log")
	default:
		return nil
	}
	if len(data) == 0 {
		return nil
	}
	switch data[0] {
	case pglogrepl.PrimaryKeepaliveMessageByteID:
		k, err := pglogrepl.ParsePrimaryKeepaliveMessage(data[1:])
		if err != nil {
			return err
		}
		s.window.idle(k.ServerWALEnd)
		if k.ReplyRequested {
			return s.status(now)
		}
	case pglogrepl.XLogDataByteID:
		x, err := pglogrepl.ParseXLogData(data[1:])
		if err != nil {
			return err
		}
		if len(x.WALData) > 0 {
			return s.logical(x.WALData, now)
		}
	}
	return nil
}

// logical takes a message of pgoutput.
func (s *session) logical(data []byte, now time.Time) error {
	switch pglogrepl.MessageType(data[0]) {
	case pglogrepl.MessageTypeInsert:
		return s.insert(data, now)
	case pglogrepl.MessageTypeBegin, pglogrepl.MessageTypeCommit, pglogrepl.MessageTypeRelation:
	default: // types, origins, and what the publication has beside inserts
		return nil
	}
	m, err := pglogrepl.Parse(data)
	if err != nil {
		return fmt.Errorf("walrelay: read the log: %w", err)
	}
	switch m := m.(type) {
	case *pglogrepl.BeginMessage:
		s.unread, s.number = m.FinalLSN, 0
		s.window.begin(m.FinalLSN)
	case *pglogrepl.CommitMessage:
		s.window.commit(m.CommitLSN, m.TransactionEndLSN)
	case *pglogrepl.RelationMessage:
		delete(s.relations, m.RelationID)
		if m.Namespace == s.schema && m.RelationName == s.name {
			r, err := newRelation(m)
			if err != nil {
				return err
			}
			s.relations[m.RelationID] = r
		}
	}
	return nil
}

func (s *session) insert(data []byte, now time.Time) error {
	if len(data) < 5 {
		return errShort
	}
	id := uint32(data[1])<<24 | uint32(data[2])<<16 | uint32(data[3])<<8 | uint32(data[4])
	r := s.relations[id]
	if r == nil { // another table of the publication
		return nil
	}
	row, err := r.read(data)
	if err != nil {
		return err
	}
	if !row.byLog() {
		return nil
	}
	s.number++
	s.window.add(row.event(now), s.unread, s.number)
	return nil
}

// keeper writes down how far the session is.
type keeper struct {
	*session
	wrote     time.Time     // the last bookmark
	asked     time.Time     // the last look for a checkpoint
	candidate uint64        // a checkpoint, once everything before at is answered
	at        pglogrepl.LSN // zero: there is none
	taken     time.Time
	wasRepair bool
	failures  int
}

func (k *keeper) run(ctx context.Context) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	k.wrote = time.Now()
	k.wasRepair = k.window.isRepairing()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			if err := k.turn(ctx, now); err != nil {
				return err
			}
		}
	}
}

func (k *keeper) turn(ctx context.Context, now time.Time) error {
	if n := k.window.stalled(now, k.cfg.StallLimit); n > 0 {
		k.log.WarnContext(ctx, "outbox: events of destinations that are stopped, paused or limited wait "+
			"in the table", "events", n)
	}
	done, answered := k.window.progress()
	repaired := k.wasRepair && !k.window.isRepairing()
	moved := uint64(done) > k.confirmed.Load()
	since := now.Sub(k.wrote)
	var err error
	switch {
	case repaired, moved && answered >= k.cfg.ConfirmEvents, moved && answered > 0 && since >= k.cfg.ConfirmEvery,
		moved && since >= k.cfg.CheckpointEvery:
		err = k.write(ctx, done, answered, repaired)
	}
	if err == nil && now.Sub(k.asked) >= k.cfg.CheckpointEvery {
		k.asked = now
		err = k.look(ctx, done)
	}
	if err == nil || ctx.Err() != nil {
		k.failures = 0
		return nil //nolint:nilerr // the session ends
	}
	if errors.Is(err, errNotLeading) || errors.Is(err, errRepair) || isFinal(err) {
		return err
	}
	if k.failures++; k.failures%50 == 1 {
		k.log.WarnContext(ctx, "outbox: the position in the log cannot be written down, so the server "+
			"keeps the log", "failures", k.failures, "err", err)
	}
	return nil
}

// write writes the bookmark, and then lets the server know. The order matters: the server is never
// told more than the bookmark has, so a slot that is further than the bookmark was moved by
// somebody else. The write also is a transaction of this database, and so makes the server go on
// while only other databases are busy.
func (k *keeper) write(ctx context.Context, done pglogrepl.LSN, answered int, repaired bool) error {
	var checkpoint any
	var age time.Duration
	if k.at != 0 && done >= k.at && !k.window.isRepairing() {
		checkpoint, age = strconv.FormatUint(k.candidate, 10), time.Since(k.taken)
	}
	n, err := k.db.exec(ctx, `UPDATE {log} SET confirmed = greatest(confirmed, $3::text::pg_lsn),
  repairing = repairing AND NOT $6::boolean, checkpoint = COALESCE($4::text::xid8, checkpoint),
  checkpoint_at = CASE WHEN $4::text IS NULL THEN checkpoint_at
    ELSE clock_timestamp() - $5::bigint * interval '1 microsecond' END
WHERE slot = $1::text AND epoch = $2::bigint`, k.cfg.Slot, k.epoch, done.String(), checkpoint, age.Microseconds(),
		repaired)
	if err != nil {
		return err
	}
	if n == 0 {
		return errNotLeading
	}
	if checkpoint != nil {
		k.at = 0
	}
	if repaired {
		k.wasRepair = false
		k.log.InfoContext(ctx, "outbox: the slot is repaired")
	}
	k.confirmed.Store(uint64(done))
	k.window.confirmed(answered)
	k.wrote = time.Now()
	return nil
}

// look takes a candidate for a checkpoint, and forgets keys that have no open rows any more.
//
// Every transaction before the oldest one that runs has ended, and its end is in the log before the
// position that is read after that.
func (k *keeper) look(ctx context.Context, done pglogrepl.LSN) error {
	if err := k.published(ctx); err != nil {
		return err
	}
	if k.at == 0 || done < k.at && time.Since(k.taken) > 6*k.cfg.CheckpointEvery {
		var oldest int64
		var at pglogrepl.LSN
		if _, err := k.db.row(ctx, "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, "+
			"pg_current_wal_insert_lsn()::text", nil, &oldest, (*lsnText)(&at)); err != nil {
			return err
		}
		k.candidate, k.at, k.taken = uint64(oldest), at, time.Now()
	}
	keys, _ := k.window.spilledKeys(1000)
	if len(keys) == 0 {
		return nil
	}
	open, err := k.db.stillOpen(ctx, hexKeys(keys), k.repo.skipDead)
	if err != nil {
		return err
	}
	still := map[core.KeyID]bool{}
	for _, id := range open {
		still[id] = true
	}
	var over []core.KeyID
	for _, id := range keys {
		if !still[id] {
			over = append(over, id)
		}
	}
	k.window.unspill(over)
	return nil
}

// published looks whether the publication still has the events. A person may have changed it: then
// the server passes over events. They committed after the last checkpoint, and so are published
// from the table when the publication is right again.
func (k *keeper) published(ctx context.Context) error {
	_, _, err := k.publication(ctx)
	if errors.Is(err, errNoPublication) || errors.Is(err, ErrSlotTaken) {
		unsent := k.unsent(ctx, err)
		if errors.Is(unsent, errRepair) && errors.Is(err, ErrSlotTaken) {
			return err
		}
		return unsent
	}
	return err
}

// last writes the bookmark when the session ends.
func (k *keeper) last() {
	done, answered := k.window.progress()
	if uint64(done) <= k.confirmed.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := k.write(ctx, done, answered, false); err != nil {
		k.log.Warn("outbox: the last position in the log cannot be written down: the events since then "+
			"are published again", "err", err)
	}
}

// repairRows are the rows that a repair publishes from the table.
type repairRows struct {
	tx   pgx.Tx
	conn interface{ Release() }
	from uint64
	read atomic.Bool // all rows were read
}

func (r *repairRows) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if r.tx != nil {
		_ = r.tx.Rollback(ctx)
		r.tx = nil
	}
	if r.conn != nil {
		r.conn.Release()
		r.conn = nil
	}
}
