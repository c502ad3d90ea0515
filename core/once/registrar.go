package once

import "context"

// Registrar is a Store or a TxStore that remembers for a week which programs use a scope, so that two
// programs that chose one name by mistake can be told. The stores of package sqlonce and of module
// inbox/redisonce are Registrars.
type Registrar interface {
	// Register writes that the program uses the scope now, and returns the others that do. It does so
	// in a transaction of its own.
	Register(ctx context.Context, scope, program string) (others []string, err error)
}

// Register is Register of the Runner's Store, or of its TxStore if it has no Store. It does nothing
// if that is no Registrar.
func (r *Runner) Register(ctx context.Context, scope, program string) (others []string, err error) {
	store, ok := r.cfg.Store.(Registrar)
	if r.cfg.Store == nil {
		store, ok = r.cfg.TxStore.(Registrar)
	}
	if !ok || program == "" {
		return nil, nil
	}
	return store.Register(ctx, scope, program)
}
