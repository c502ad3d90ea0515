package pgxoutbox

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// waiting holds inserts that are sent with COMMIT, or earlier if a statement could observe their
// absence.
type waiting struct {
	all         []*sqltx.DeferredInsert // of one table
	rows, bytes int
}

// Events wait in memory, and are locked for and written in one statement. Above these limits the
// waiting events are written first.
const (
	mostRows  = 1000
	mostBytes = 1 << 20
)

func (w *waiting) empty() bool { return len(w.all) == 0 }

// names are the names of the tables that the events are written to.
func (w *waiting) names() []string { return w.all[0].Names }

func (w *waiting) add(d *sqltx.DeferredInsert) {
	w.all = append(w.all, d)
	w.rows += d.Rows
	w.bytes += d.Bytes
}

// fits reports whether d can be in one statement with the waiting inserts.
func (w *waiting) fits(d *sqltx.DeferredInsert) bool {
	return w.empty() || w.all[0].Into == d.Into && w.rows+d.Rows <= mostRows && w.bytes+d.Bytes <= mostBytes
}

// join takes the waiting inserts and returns their statement. From here on they are sent, or never.
func (w *waiting) join() (*insert, error) {
	all := w.all
	*w = waiting{}
	joined, err := all[0].Join(all)
	if err != nil {
		return nil, err
	}
	return &insert{JoinedInsert: joined, all: all}, nil
}

// insert is one INSERT of deferred events.
type insert struct {
	sqltx.JoinedInsert
	all []*sqltx.DeferredInsert
}

func (i *insert) sending() {
	for _, d := range i.all {
		d.Sending()
	}
}

func (i *insert) done(err error) {
	for _, d := range i.all {
		d.Done(err)
	}
}

// keep reports whether a connection may prepare the statement.
func (i *insert) keep() bool { return i.all[0].Keep }

// read reads the rows of the statement to their end, and returns the error of the server. A decoding
// error does not affect the transaction.
func (i *insert) read(rows pgx.Rows) error {
	_ = i.Read(insertRows{rows})
	rows.Close()
	return rows.Err()
}

// insertRows are rows of pgx as the repository reads rows.
type insertRows struct{ pgx.Rows }

func (r insertRows) Close() error {
	r.Rows.Close()
	return r.Err()
}

// take keeps an INSERT of events until COMMIT, if that is allowed.
func (s *session) take(ctx context.Context, query string, args []any) (taken bool, err error) {
	d := sqltx.OfferedInsert(ctx)
	if d == nil {
		return false, nil
	}
	t := s.open
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if t.lost != nil {
		return false, t.lost
	}
	// sqltx has refused it if the transaction has failed or ended.
	// In a transaction that only reads, the server refuses the statement at once.
	if t.eager || t.readOnly || d.Rows > mostRows || d.Bytes > mostBytes {
		return false, nil
	}
	if !t.waits.fits(d) {
		if err := s.flush(ctx, query); err != nil {
			return false, err
		}
	}
	d.Take(query, args)
	t.waits.add(d)
	return true, nil
}

// flush writes the events that wait. before is the statement that has to see them.
func (s *session) flush(ctx context.Context, before string) error {
	t := s.open
	if t == nil || t.waits.empty() {
		return nil
	}
	if err := ctx.Err(); err != nil { // the statement is not sent, and the events go on waiting
		return err
	}
	if s.pg.PgConn().IsBusy() {
		return errBusy
	}
	if status := s.status(); status != 'T' {
		s.dropWaiting(status)
		return nil // the server refuses the statement itself
	}
	in, err := t.waits.join()
	if err == nil {
		err = s.insert(ctx, in)
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("pgxoutbox: before %s: %w", clip(before), err)
	if s.status() == 'T' { // not an error of the server: the transaction would commit without its events
		t.lost = fmt.Errorf("%w: its events were not written: %w", core.ErrTxAborted, err)
	}
	return err
}

// insert writes events on their own.
func (s *session) insert(ctx context.Context, in *insert) error {
	in.sending()
	rows, err := s.pg.Query(ctx, in.Query, in.Args...)
	if err == nil {
		err = in.read(rows)
	}
	in.done(err)
	if err != nil {
		return in.Wrap(err)
	}
	return nil
}

// clip cuts a statement for an error.
func clip(query string) string {
	const most = 60
	if len(query) > most {
		return fmt.Sprintf("%.*q...", most, query)
	}
	return fmt.Sprintf("%q", query)
}

// dropWaiting forgets events that can no longer be written: their transaction is aborted (E), has
// ended (I), or its connection is closed (0).
func (s *session) dropWaiting(status byte) {
	all := s.open.waits.all
	s.open.waits = waiting{}
	err := fmt.Errorf("%w: a statement failed before the events were written", core.ErrTxAborted)
	if status == 'I' {
		err = fmt.Errorf("%w: a statement ended the transaction before its events were written", core.ErrCommitUnknown)
		s.open.lost = err
	}
	for _, d := range all {
		d.Done(err)
	}
}

// flight sends the events that wait together with COMMIT.
func (s *session) flight(ctx context.Context) (core.Outcome, error) {
	in, err := s.open.waits.join()
	if err != nil {
		return core.RolledBack, errors.Join(err, s.sendRollback(ctx))
	}
	batch := &pgx.Batch{}
	batch.Queue(in.Query, in.Args...)
	batch.Queue(commitText)
	c := s.cancelWith(ctx)
	in.sending()
	// The context must not end the reading: the server would get the lock that it waits for later,
	// and commit.
	outcome, err := s.fly(context.WithoutCancel(ctx), batch, in)
	cancelled := c.stop()
	switch {
	case cancelled:
		s.kill() // a cancel request that comes late would hit the next statement
	case outcome == core.RolledBack && !s.closed() && s.pg.PgConn().TxStatus() != 'I':
		_ = s.sendRollback(ctx)
	case outcome == core.Unknown:
		s.kill()
	}
	if err != nil && cancelled {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return outcome, err // an unknown outcome is reported by the tracker
}

// fly sends the batch and judges the answers.
func (s *session) fly(ctx context.Context, batch *pgx.Batch, in *insert) (core.Outcome, error) {
	var res results
	if in.keep() {
		res = s.sendBatch(ctx, batch, batch.QueuedQueries[0], inserts)
	} else {
		res = s.pg.SendBatch(ctx, batch)
	}
	rows, err := res.Query()
	if err == nil {
		err = in.read(rows)
	}
	in.done(err)
	if err != nil {
		_ = res.Close()
		return s.notInserted(err), in.Wrap(err)
	}
	tag, err := res.Exec()
	_ = res.Close() // the tag has decided
	outcome, err := judgeCommit(tag, err)
	if err != nil {
		err = fmt.Errorf("pgxoutbox: commit: %w", err)
	}
	return outcome, err
}

// notInserted returns the outcome after an error of the INSERT. An error of the server that leaves
// the connection as it is proves that the server has skipped COMMIT. An error that ends the
// connection may come from a pooler: PgBouncer sends one when it has lost the server, which may
// have committed before, or may commit when it gets the lock of a key.
func (s *session) notInserted(err error) core.Outcome {
	if refusedBy(err) || !s.closed() && !s.unsent() && s.pg.PgConn().TxStatus() != 'I' {
		return core.RolledBack
	}
	return core.Unknown
}

// canceller cancels a statement on the server when a context ends.
type canceller struct {
	ended chan struct{}
	off   func() bool
	sent  atomic.Bool
}

// cancelWith asks the server to cancel what it does when ctx ends. If no answer has come a while
// after that, it closes the connection.
func (s *session) cancelWith(ctx context.Context) *canceller {
	c := &canceller{ended: make(chan struct{})}
	pg := s.pg.PgConn()
	grace := s.cfg.CancelGrace
	if grace <= 0 {
		grace = defaultCancelGrace
	}
	c.off = context.AfterFunc(ctx, func() {
		c.sent.Store(true)
		go func() {
			// The result of the cancel request shows on the connection itself. The request goes on
			// after that: PgBouncer 1.18 dies if its client hangs up too early.
			limit, cancel := context.WithTimeout(context.Background(), grace)
			defer cancel()
			_ = pg.CancelRequest(limit)
		}()
		limit := time.NewTimer(grace)
		defer limit.Stop()
		select {
		case <-c.ended:
		case <-limit.C:
			_ = pg.Conn().Close()
		}
	})
	return c
}

const defaultCancelGrace = 5 * time.Second

// stop reports whether a cancel request was sent.
func (c *canceller) stop() bool {
	close(c.ended)
	return !c.off()
}
