package pgxoutbox

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// SendBatch implements pgx.Tx. Each text of the batch is judged.
func (t *nativeTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.closed {
		return t.inner.SendBatch(ctx, b)
	}
	var texts []string // those that may touch the transaction
	clear := true
	for _, q := range b.QueuedQueries {
		if t.tracker.Harmless(q.SQL) {
			continue
		}
		opaque, err := t.tracker.Before(q.SQL)
		if err != nil {
			return pgx.FailedBatchResults(b, err)
		}
		if opaque && isName(q.SQL) { // of a prepared statement: only its tag would tell
			t.pass()
			continue
		}
		texts = append(texts, q.SQL)
		clear = clear && !opaque
	}
	if len(texts) == 0 {
		return t.inner.SendBatch(ctx, b)
	}
	return &watchedBatch{BatchResults: t.inner.SendBatch(ctx, b), tx: t, texts: texts, clear: clear}
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
		// Some of the texts were executed, or nobody knows what they did.
		b.tx.tracker.Observe("COMMIT", nil)
		return err
	}
	for _, text := range b.texts {
		b.tx.tracker.Observe(text, nil)
	}
	return nil
}
