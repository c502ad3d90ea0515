package pgxoutbox

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// With is for package sqloutbox, which runs the claims of a relay with it. Each statement of the
// result is a transaction of its own with these settings, in one round trip. The result is used
// while no transaction is open on the connection. It is not used any more when the connection is
// used otherwise.
func (c *conn) With(settings map[string]string) sqloutbox.Querier {
	return alone{session: c.session, first: c.session.settings.text(settings)}
}

// settingsCache has the text of the settings that were asked for last, which are always the same.
type settingsCache struct {
	settings map[string]string
	made     string
}

func (c *settingsCache) text(settings map[string]string) string {
	if c.made == "" || !maps.Equal(c.settings, settings) {
		c.settings, c.made = maps.Clone(settings), settingsText(settings)
	}
	return c.made
}

// alone runs statements as transactions of their own: BEGIN, another statement that prepares the
// transaction, the statement itself and COMMIT are sent together. BEGIN names the isolation,
// because the default of the connection may be another one. Only the tag of COMMIT proves that the
// transaction has committed, as in a flight.
type alone struct {
	session *session
	first   string
}

const beginAlone = "begin isolation level read committed"

var errInTransaction = errors.New("pgxoutbox: a transaction is open on this connection")

func (a alone) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	t, err := a.send(ctx, query, args)
	if err != nil {
		return 0, err
	}
	tag, err := t.results.Exec()
	if ended := t.end(err); err == nil {
		err = ended
	}
	return tag.RowsAffected(), err
}

func (a alone) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	rows, err := a.query(ctx, query, args)
	if err != nil {
		return nil, err // not a nil *resultRows in a non-nil interface
	}
	return rows, nil
}

func (a alone) query(ctx context.Context, query string, args []any) (*resultRows, error) {
	t, err := a.send(ctx, query, args)
	if err != nil {
		return nil, err
	}
	rows, err := t.results.Query()
	if err != nil {
		return nil, t.end(err)
	}
	return &resultRows{Rows: rows, end: func() error { return t.end(rows.Err()) }}, nil
}

// send sends all and reads the answers before the statement's.
func (a alone) send(ctx context.Context, query string, args []any) (*aloneTrip, error) {
	s := a.session
	switch {
	case s.closed():
		return nil, driver.ErrBadConn
	case s.inTx(), s.pg.PgConn().TxStatus() != statusNone:
		return nil, errInTransaction
	case ctx.Err() != nil:
		return nil, fmt.Errorf("pgxoutbox: begin: %w", ctx.Err())
	case !s.alive(ctx):
		return nil, driver.ErrBadConn
	}
	if s.statements.ask(ctx, s.pg.PgConn()); s.closed() {
		return nil, driver.ErrBadConn
	}
	b := &pgx.Batch{}
	b.Queue(beginAlone)
	b.Queue(a.first)
	named := b.Queue(query, args...)
	b.Queue("commit")
	// The context must not end the reading: the server would claim, commit, and nobody would know.
	t := &aloneTrip{session: s, ctx: ctx, cancel: s.cancelWith(ctx)}
	t.results = s.sendBatch(context.WithoutCancel(ctx), b, named, claims)
	for range 2 {
		if _, err := t.results.Exec(); err != nil {
			return nil, t.end(err)
		}
	}
	return t, nil
}

// aloneTrip are the answers of a statement that was sent alone.
type aloneTrip struct {
	session *session
	ctx     context.Context //nolint:containedctx // the context of the statement, whose rows are read without one
	cancel  *canceller
	results results
}

// end reads the answers that are left. failed is the error of an answer before COMMIT's. It returns
// the error of the transaction, nil if it has committed.
func (t *aloneTrip) end(failed error) error {
	s, outcome, err := t.session, core.RolledBack, failed
	if err == nil {
		tag, answer := t.results.Exec()
		outcome, err = judgeCommit(tag, answer)
	}
	_ = t.results.Close() // nil, or the same error
	cancelled := t.cancel.stop()
	switch {
	case cancelled:
		s.kill() // a cancel request that comes late would hit the next statement
	case !s.closed() && s.pg.PgConn().TxStatus() != statusNone:
		_ = s.sendRollback(t.ctx)
	case outcome == core.Unknown:
		s.kill()
	}
	if err != nil && cancelled {
		return fmt.Errorf("%w: %w", context.Cause(t.ctx), err)
	}
	return err
}
