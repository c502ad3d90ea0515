package pgxoutbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// nativeSavepoint is a nested transaction of a nativeTx: a savepoint. As with pgx, statements of
// the outer transaction belong to it as long as it is open.
type nativeSavepoint struct {
	*nativeTx
	name string
	over bool
}

var _ pgx.Tx = (*nativeSavepoint)(nil)

// Begin implements pgx.Tx.
func (s *nativeSavepoint) Begin(ctx context.Context) (pgx.Tx, error) {
	if s.over {
		return nil, pgx.ErrTxClosed
	}
	return s.nativeTx.Begin(ctx)
}

// Commit implements pgx.Tx: it releases the savepoint. If it cannot, as after a statement that
// failed, it rolls back to the savepoint.
func (s *nativeSavepoint) Commit(ctx context.Context) error {
	if s.over {
		return pgx.ErrTxClosed
	}
	s.over = true
	ctx, cancel := lasting(ctx)
	defer cancel()
	_, err := s.nativeTx.Exec(ctx, "release savepoint "+s.name)
	if err != nil {
		_ = s.undo(ctx)
	}
	return err
}

// Rollback implements pgx.Tx: it rolls back to the savepoint. If it cannot, the transaction does
// not commit: the changes since the savepoint would be in it.
func (s *nativeSavepoint) Rollback(ctx context.Context) error {
	if s.over {
		return pgx.ErrTxClosed
	}
	s.over = true
	return s.undo(ctx)
}

func (s *nativeSavepoint) undo(ctx context.Context) error {
	ctx, cancel := lasting(ctx)
	defer cancel()
	_, err := s.nativeTx.Exec(ctx, "rollback to savepoint "+s.name)
	if err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		s.refuse(fmt.Errorf("roll back to a savepoint: %w", err))
	}
	return err
}

// Exec implements pgx.Tx.
func (s *nativeSavepoint) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if s.over {
		return pgconn.CommandTag{}, pgx.ErrTxClosed
	}
	return s.nativeTx.Exec(ctx, sql, args...)
}

// Query implements pgx.Tx.
func (s *nativeSavepoint) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if s.over {
		return errRows{pgx.ErrTxClosed}, pgx.ErrTxClosed
	}
	return s.nativeTx.Query(ctx, sql, args...)
}

// QueryRow implements pgx.Tx.
func (s *nativeSavepoint) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if s.over {
		return watchedRow{errRows{pgx.ErrTxClosed}}
	}
	return s.nativeTx.QueryRow(ctx, sql, args...)
}

// Prepare implements pgx.Tx.
func (s *nativeSavepoint) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if s.over {
		return nil, pgx.ErrTxClosed
	}
	return s.nativeTx.Prepare(ctx, name, sql)
}

// CopyFrom implements pgx.Tx.
func (s *nativeSavepoint) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string,
	rows pgx.CopyFromSource,
) (int64, error) {
	if s.over {
		return 0, pgx.ErrTxClosed
	}
	return s.nativeTx.CopyFrom(ctx, table, columns, rows)
}

// SendBatch implements pgx.Tx.
func (s *nativeSavepoint) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if s.over {
		return pgx.FailedBatchResults(b, pgx.ErrTxClosed)
	}
	return s.nativeTx.SendBatch(ctx, b)
}

// SendBatch implements pgx.Tx. Each text of the batch is judged.
func (t *nativeTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.closed {
		return pgx.FailedBatchResults(b, pgx.ErrTxClosed)
	}
	var texts []string // texts that may affect the transaction
	clear := true
	for _, q := range b.QueuedQueries {
		if _, err := t.show(ctx, q.SQL, q.Arguments); err != nil {
			return pgx.FailedBatchResults(b, err)
		}
		if t.tracker.Harmless(q.SQL) && !isName(q.SQL) {
			continue
		}
		opaque, err := t.tracker.Before(q.SQL)
		if err != nil {
			return pgx.FailedBatchResults(b, err)
		}
		if isName(q.SQL) && (opaque || t.tracker.Harmless(q.SQL)) { // only its tag would show its effect
			t.pass()
			t.session.distrust()
			continue
		}
		texts = append(texts, q.SQL)
		clear = clear && !opaque
	}
	results := t.session.inner(ctx).SendBatch(ctx, b) // refuses a batch that begins a transaction
	if len(texts) == 0 {
		return results
	}
	return &watchedBatch{BatchResults: results, tx: t, texts: texts, clear: clear}
}

// watchedBatch shows the tracker the texts of a batch when all of its results have been read.
type watchedBatch struct {
	pgx.BatchResults
	tx    *nativeTx
	texts []string
	clear bool // the tracker can read each of them
	over  bool
}

// Close implements pgx.BatchResults.
func (b *watchedBatch) Close() error {
	err := b.BatchResults.Close()
	if b.over || b.tx.closed {
		return err
	}
	b.over = true
	if err != nil || !b.clear {
		// Some of the texts were executed, or their effect is not known.
		b.tx.tracker.Observe("COMMIT", nil)
		return err
	}
	for _, text := range b.texts {
		b.tx.tracker.Observe(text, nil)
	}
	return nil
}
