package sqltx

import "context"

// Refusal returns a context that has ended with err: a method of database/sql that cannot return an error itself, as Tx.StmtContext, is
// given it to make a result that has it. For authors of adapters.
func Refusal(ctx context.Context, err error) context.Context { return refusal{ctx, err} }

type refusal struct {
	context.Context //nolint:containedctx // it is one
	err             error
}

var over = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (r refusal) Done() <-chan struct{} { return over }
func (r refusal) Err() error            { return r.err }
