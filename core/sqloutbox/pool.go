package sqloutbox

import (
	"context"
	"database/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// pool runs statements in transactions of their own.
type pool struct {
	db      *sql.DB
	dialect core.Dialect
}

// single runs one statement as a transaction of its own, and repeats it if other transactions made
// it fail.
func (p pool) single(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	return wrap(what, sqlkit.Retry(ctx, func() error { return fn(sqlkit.On{Conn: p.db}) }))
}

// inTx runs several statements as a transaction of its own.
func (p pool) inTx(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	return wrap(what, sqlkit.InTx(ctx, p.db, p.dialect, func(c sqlkit.Conn) error { return fn(sqlkit.On{Conn: c}) }))
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	if sqlerr.MissingTable(err) {
		return errtext.Errorf("sqloutbox: %s: %w (%s)", what, err, howToCreate)
	}
	return errtext.Errorf("sqloutbox: %s: %w", what, err)
}
