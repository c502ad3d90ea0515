package once

import "time"

// Observer is told what a Runner does: the seam for metrics and traces, without a dependency.
// Fields may be nil. They are called by many goroutines and must be fast, must not block and must
// not panic. New fields may be added.
type Observer struct {
	// Decided: a store answered what is to be done about a key, or failed to (State is 0 then).
	Decided func(info DecideInfo)
	// Ran: the work was run and its end recorded, or not.
	Ran func(info RunInfo)
	// LeaseLost: the lease of running work was lost or could not be extended in time; its context
	// has ended.
	LeaseLost func(key Key, err error)
	// Retried: a transaction failed and is run again as a whole.
	Retried func(key Key, err error)
	// Cleaned: a chunk of forgotten keys was deleted, or could not be.
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
	TakenOver bool          // an earlier holder disappeared without a word
	Waited    time.Duration // until this answer, with all pauses
	Err       error
}

// RunInfo describes one run of the work.
type RunInfo struct {
	Key      Key
	Form     Form
	Attempt  int // see Acquired
	Duration time.Duration
	Err      error // of the work, or of recording its end; nil: done. A *core.PanicError when the work panicked
}

// withDefaults returns a copy whose nil fields do nothing.
func (o *Observer) withDefaults() Observer {
	var c Observer
	if o != nil {
		c = *o
	}
	if c.Decided == nil {
		c.Decided = func(DecideInfo) {}
	}
	if c.Ran == nil {
		c.Ran = func(RunInfo) {}
	}
	if c.LeaseLost == nil {
		c.LeaseLost = func(Key, error) {}
	}
	if c.Retried == nil {
		c.Retried = func(Key, error) {}
	}
	if c.Cleaned == nil {
		c.Cleaned = func(int, error) {}
	}
	return c
}
