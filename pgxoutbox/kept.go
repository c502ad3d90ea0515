package pgxoutbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// results are the answers to the statements of a batch, in their order, as pgx.BatchResults are.
type results interface {
	Query() (pgx.Rows, error)
	Exec() (pgconn.CommandTag, error)
	Close() error
}

// keptResults are the answers to a batch with one statement that was executed by its name. The
// batch is sent and traced as pgx.Conn.SendBatch does it for statements of its cache.
type keptResults struct {
	session  *session
	ctx      context.Context //nolint:containedctx // the context that the tracer has returned
	queued   []*pgx.QueuedQuery
	named    *pgx.QueuedQuery
	st       *statement       // statement of named
	fresh    bool             // it is prepared with this batch
	pipeline *pgconn.Pipeline // nil: nothing was sent
	rows     pgx.Rows         // rows of the last query; nil: there is none, or it was traced
	of       *pgx.QueuedQuery
	err      error // the first error
}

// sendBatch sends a batch. One statement is executed by its name, if the connection keeps it. The
// others have no arguments.
func (s *session) sendBatch(ctx context.Context, batch *pgx.Batch, named *pgx.QueuedQuery, why purpose) results {
	st := s.statements.of(named.SQL, why)
	if st == nil {
		return s.pg.SendBatch(ctx, batch)
	}
	if s.tracer != nil {
		ctx = s.tracer.TraceBatchStart(ctx, s.pg, pgx.TraceBatchStartData{Batch: batch})
	}
	r := &keptResults{
		session: s, ctx: ctx, queued: batch.QueuedQueries, named: named, st: st, fresh: st.described == nil,
	}
	var b pgx.ExtendedQueryBuilder
	if r.err = b.Build(s.pg.TypeMap(), st.described, named.Arguments); r.err != nil {
		return r
	}
	r.pipeline = s.pg.PgConn().StartPipeline(ctx)
	for _, q := range batch.QueuedQueries {
		switch {
		case q != named:
			r.pipeline.SendQueryParams(q.SQL, nil, nil, nil, nil)
		case r.fresh: // behind a BEGIN: preparing takes a snapshot, after which no isolation may be set
			r.pipeline.SendDeallocate(st.name) // it is no error if there is none
			r.pipeline.SendPrepare(st.name, q.SQL, nil)
			r.pipeline.SendQueryPrepared(st.name, b.ParamValues, b.ParamFormats, nil)
		default:
			r.pipeline.SendQueryStatement(st.described, b.ParamValues, b.ParamFormats, b.ResultFormats)
		}
	}
	r.err = r.pipeline.Sync()
	return r
}

// nextAnswer reads the next answer, which is a T if it is no error.
func nextAnswer[T any](p *pgconn.Pipeline) (found T, err error) {
	got, err := p.GetResults()
	if err != nil {
		return found, err
	}
	found, ok := got.(T)
	if !ok {
		return found, fmt.Errorf("pgxoutbox: the server answered by a %T", got)
	}
	return found, nil
}

// next returns the next statement and its answer.
func (r *keptResults) next() (q *pgx.QueuedQuery, found *pgconn.ResultReader) {
	r.closed()
	q, r.queued = r.queued[0], r.queued[1:]
	if r.err == nil && q == r.named && r.fresh {
		r.prepared()
	}
	if r.err == nil {
		found, r.err = nextAnswer[*pgconn.ResultReader](r.pipeline)
	}
	if r.err != nil {
		r.trace(q, pgconn.CommandTag{})
	}
	return q, found
}

// prepared reads that the statement was prepared. It stays so if the transaction is rolled back.
func (r *keptResults) prepared() {
	if _, r.err = nextAnswer[*pgconn.CloseComplete](r.pipeline); r.err != nil {
		return
	}
	var found *pgconn.StatementDescription
	if found, r.err = nextAnswer[*pgconn.StatementDescription](r.pipeline); r.err == nil {
		r.st.describe(found)
	}
}

func (r *keptResults) Query() (pgx.Rows, error) {
	q, found := r.next()
	if r.err != nil {
		return errRows{r.err}, r.err
	}
	r.rows, r.of = pgx.RowsFromResultReader(r.session.pg.TypeMap(), found), q
	return r.rows, nil
}

func (r *keptResults) Exec() (tag pgconn.CommandTag, err error) {
	q, found := r.next()
	if r.err != nil {
		return tag, r.err
	}
	tag, r.err = found.Close()
	r.trace(q, tag)
	return tag, r.err
}

// closed notes how the last query ended. The caller has closed its rows.
func (r *keptResults) closed() {
	if r.rows == nil {
		return
	}
	tag, err := r.rows.CommandTag(), r.rows.Err()
	if r.rows = nil; r.err == nil {
		r.err = err
	}
	r.trace(r.of, tag)
}

func (r *keptResults) trace(q *pgx.QueuedQuery, tag pgconn.CommandTag) {
	if t := r.session.tracer; t != nil {
		t.TraceBatchQuery(r.ctx, r.session.pg,
			pgx.TraceBatchQueryData{SQL: q.SQL, Args: q.Arguments, CommandTag: tag, Err: r.err})
	}
}

// Close reads the remaining answers, up to the end of the batch.
func (r *keptResults) Close() error {
	r.closed()
	if r.pipeline != nil {
		if err := r.pipeline.Close(); r.err == nil {
			r.err = err
		}
	}
	r.session.statements.failed(r.err)
	if t := r.session.tracer; t != nil {
		t.TraceBatchEnd(r.ctx, r.session.pg, pgx.TraceBatchEndData{Err: r.err})
	}
	return r.err
}
