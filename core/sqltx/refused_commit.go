package sqltx

import (
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
)

// refusedCommits are the reasons why a transaction must not commit. The zero value has none. It is
// safe for use by several goroutines.
type refusedCommits struct {
	mu  sync.Mutex
	all []*refusedCommit
}

type refusedCommit struct {
	err    error
	lifted bool
}

// add adds a reason. The reason is removed if the changes so far are rolled back to a savepoint;
// onOutcome tells that.
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

// standing returns the first reason that was not removed, else nil.
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

// RefuseCommit makes Commit roll back and return an error wrapping err, unless the changes so far
// are rolled back to a savepoint before. It is for adapters that learn after a statement that its
// events cannot be written. The program may ignore the error of the statement.
func (t *Tx) RefuseCommit(err error) { t.refused.add(err, t.OnOutcome) }
