package walrelay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

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
		s.log.WarnContext(ctx, "outbox: the connection to the log is lost", "error", err)
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
				s.log.WarnContext(ctx, "outbox: the log cannot be read now", "failures", failures, "error", err)
			}
		}
	}
}

// again connects and takes the slot back, if no other process has had it since.
func (s *session) again(ctx context.Context) error {
	closeConn(s.conn)
	conn, id, err := s.dial(ctx)
	if err != nil {
		return err
	}
	s.conn = conn
	if id.SystemID != s.system {
		return errRepair
	}
	if id.Timeline != s.timeline {
		return errNotLeading
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
	case b == nil || b.epoch != s.epoch || uint64(b.confirmed) < s.confirmed.Load():
		return errNotLeading
	case state == nil || state.confirmed > b.confirmed: // it was made again
		return errRepair
	}
	return nil
}

// errLeave: a server that shuts down waits until the reader has confirmed everything. It takes no
// bookmark any more, without which nothing is confirmed.
var errLeave = errors.New("walrelay: the position cannot be written down, so that the server cannot shut down")

// stream reads the log from one connection.
func (s *session) stream(ctx context.Context) error {
	s.relations, s.unread, s.number, s.held = map[uint32]*relation{}, 0, 0, nil
	s.ended = snapshot{} // a server that was promoted gives ids again
	if err := s.lookForStandbys(ctx); err != nil {
		return err
	}
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
		if s.leave.Swap(false) {
			return errLeave
		}
		if now.Sub(s.lastStatus) >= statusEvery {
			if err := s.status(now); err != nil {
				return err
			}
		}
		if s.held != nil {
			// After an error, the next look asks again. Other parts log an outage.
			if ended, err := s.hasEnded(ctx, s.held.Xid); err == nil && ended {
				s.begins(s.held)
				s.held, s.looks = nil, 0
			}
		}
		if s.held != nil || !s.window.hasRoom(now) || s.repairTx != nil && !s.repairTx.read.Load() {
			// The log waits on the server. The server gets this process's status all the same.
			s.window.flush()
			wait := tick
			if s.held != nil {
				wait = min(heldTick<<min(s.looks, 10), tick)
				s.looks++
			}
			timer := time.NewTimer(wait)
			select {
			case <-s.window.signals.room:
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

// status reports the progress of this process to the server.
func (s *session) status(now time.Time) error {
	s.lastStatus = now
	at := pglogrepl.LSN(s.confirmed.Load())
	return pglogrepl.SendStandbyStatusUpdate(context.Background(), s.conn, pglogrepl.StandbyStatusUpdate{
		WALWritePosition: at, WALFlushPosition: at, WALApplyPosition: at, ClientTime: now,
	})
}

// errUnsent: the publication was missing when events committed. The server reads the log with the
// catalogue of that time, so it never sends them, although the publication may be there again.
var errUnsent = errors.New("walrelay: events committed without their publication, and the server does not send them")

// unsent makes the next look repair the slot, so that the events come from the table.
func (s *session) unsent(ctx context.Context, why error) error {
	if err := s.mayRepair(ErrSlotLost, why.Error()); err != nil {
		return err
	}
	n, err := s.db.exec(ctx, "UPDATE {log} SET repairing = true WHERE "+leads(s.timeline), s.cfg.Slot, s.epoch)
	switch {
	case err != nil:
		return err
	case n == 0:
		return errNotLeading
	}
	return fmt.Errorf("%w: %w", errRepair, why)
}

// slotSource is the file of PostgreSQL that waits for the slots of synchronized_standby_slots. Its
// warnings have the code of a missing publication, and their texts are translated.
const slotSource = "slot.c"

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
		switch {
		case m.Code != stateNotUsable:
		case m.File != slotSource: // from PostgreSQL 18 on, which goes on without the events
			return fmt.Errorf("%w: %s", errUnsent, m.Message)
		case m.Message != s.notice: // the server repeats it
			s.notice = m.Message
			s.log.Warn("outbox: the server holds events back until a standby has them: start the standby, or take its "+
				"slot out of synchronized_standby_slots", "reason", m.Message)
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
		if s.held = m; !s.syncing.Load() {
			s.begins(m)
			s.held = nil
		}
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

// begins takes the beginning of a transaction that has committed.
func (s *session) begins(m *pglogrepl.BeginMessage) {
	s.unread, s.number = m.FinalLSN, 0
	s.window.begin(m.FinalLSN)
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
