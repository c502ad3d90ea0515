package sqltx

import "context"

// ContextWithError returns a context that has ended with err. Give it to a method of database/sql
// that cannot return an error itself, such as Tx.StmtContext: its result then has the error. For
// authors of adapters.
func ContextWithError(ctx context.Context, err error) context.Context { return endedContext{ctx, err} }

type endedContext struct {
	context.Context //nolint:containedctx // endedContext is itself a context
	err             error
}

var over = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (r endedContext) Done() <-chan struct{} { return over }
func (r endedContext) Err() error            { return r.err }
