package sqltx

import (
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
)

// refusedCommits are reasons why a transaction must not commit. The zero value has none; it is safe
// for use by several goroutines.
type refusedCommits struct {
	mu  sync.Mutex
	all []*refusedCommit
}

type refusedCommit struct {
	err    error
	lifted bool
}

// add adds a reason. It is lifted when what has been done so far is rolled back, for which
// onOutcome listens.
func (v *refusedCommits) add(err error, onOutcome func(func(core.Outcome))) {
	one := &refusedCommit{err: err}
	v.mu.Lock()
	v.all = append(v.all, one)
	v.mu.Unlock()
	onOutcome(func(o core.Outcome) {
		v.mu.Lock()
		defer v.mu.Unlock()
		one.lifted = o == core.RolledBack
	})
}

// standing returns the first reason that stands, else nil.
func (v *refusedCommits) standing() error {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, one := range v.all {
		if !one.lifted {
			return one.err
		}
	}
	return nil
}

// RefuseCommit makes Commit roll back and return an error wrapping err, unless what has been done
// so far is rolled back to a savepoint before: for adapters that learn after a statement that its
// events cannot be written, whatever the program does with the error of the statement.
func (t *Tx) RefuseCommit(err error) { t.refused.add(err, t.OnOutcome) }
