package sql_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// A text has ended the transaction, and the outbox cannot tell that from the text. pgx knows it
// from the latest answer of the server, so Publish does not insert an event that would commit by
// itself.
func TestPublishAfterAHiddenEnd(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			o := openOneConn(t, pgxIn(t, testdb.Postgres(t).DSN, mode), sqloutbox.OpenConfig{})
			for range 2 { // so that the INSERT is prepared, in every mode
				o.often(unordered, ordered)
			}
			before := fixture.Count(t, o.pool, "SELECT COUNT(*) FROM outbox_event")
			for _, text := range []string{"SELECT 1;\fROLLBACK", "SELECT 1;--\rCOMMIT", "SELECT 1;/* */ABORT"} {
				for _, e := range []core.Event{unordered, ordered} {
					tx, err := o.pool.BeginTx(t.Context(), nil)
					fixture.NoError(t, err)
					own, err := sqltx.TxOf(t.Context(), tx)
					fixture.NoError(t, err)
					_, err = tx.ExecContext(t.Context(), text)
					fixture.NoError(t, err)
					if _, err := o.ob.Publish(t.Context(), own, e); !errors.Is(err, core.ErrTxAborted) {
						t.Errorf("%q: Publish: %v, want ErrTxAborted", text, err)
					}
					_ = tx.Commit()
				}
			}
			if n := fixture.Count(t, o.pool, "SELECT COUNT(*) FROM outbox_event"); n != before {
				t.Errorf("%d events were written outside of a transaction", n-before)
			}
		})
	}
}
