package sqlpause

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
)

// Tracer is a tracer of pgx that calls suite.Pause before each statement and each batch.
type Tracer struct{}

var (
	_ pgx.QueryTracer = Tracer{}
	_ pgx.BatchTracer = Tracer{}
)

// TraceQueryStart implements pgx.QueryTracer.
func (Tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return paused(ctx)
}

// TraceBatchStart implements pgx.BatchTracer.
func (Tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return paused(ctx)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (Tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchQuery implements pgx.BatchTracer.
func (Tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (Tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// paused returns a context in which the statement fails if Pause does.
func paused(ctx context.Context) context.Context {
	if err := suite.Pause(ctx); err != nil {
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(err)
		return ctx
	}
	return ctx
}
