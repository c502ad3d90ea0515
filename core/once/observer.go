package once

import (
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/callback"
)

// Observer has the callbacks of a Runner for metrics and traces. Fields may be nil. Many goroutines
// call them. They must be fast, must not block and must not panic. New fields may be added.
type Observer struct {
	// Decided: a store answered a request for a key, or failed to (State is 0 then).
	Decided func(info DecideInfo)
	// Ran: the work was run. Err says whether its end was recorded.
	Ran func(info RunInfo)
	// LeaseLost: the lease of running work was lost or could not be extended in time; its context
	// has ended.
	LeaseLost func(key Key, err error)
	// Retried: a transaction failed and is run again as a whole.
	Retried func(key Key, err error)
	// Cleaned: a chunk of expired keys was deleted, or the deletion failed.
	Cleaned func(keys int, err error)
}

// Form tells how a key is held.
type Form string

// Forms.
const (
	FormLease Form = "lease"
	FormTx    Form = "tx"
)

// DecideInfo describes one answer of a store.
type DecideInfo struct {
	Key       Key
	Form      Form
	State     State
	TakenOver bool          // an earlier holder disappeared
	Waited    time.Duration // until this answer, pauses included
	Err       error
}

// RunInfo describes one run of the work.
type RunInfo struct {
	Key      Key
	Form     Form
	Attempt  int // see Acquired
	Duration time.Duration
	// error of the work, or of recording its end; nil: done. It is a *core.PanicError if the work
	// panicked
	Err error
}

// withDefaults returns a copy whose nil fields do nothing.
func (o *Observer) withDefaults() Observer {
	all := callback.Present(o)
	return Observer{
		Decided:   callback.Each1(all, func(o *Observer) func(DecideInfo) { return o.Decided }),
		Ran:       callback.Each1(all, func(o *Observer) func(RunInfo) { return o.Ran }),
		LeaseLost: callback.Each2(all, func(o *Observer) func(Key, error) { return o.LeaseLost }),
		Retried:   callback.Each2(all, func(o *Observer) func(Key, error) { return o.Retried }),
		Cleaned:   callback.Each2(all, func(o *Observer) func(int, error) { return o.Cleaned }),
	}
}
