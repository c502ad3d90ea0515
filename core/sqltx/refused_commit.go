package sqltx

import (
	"slices"
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
)

// refusedCommits are the reasons why a transaction must not commit. The zero value has none. It is
// safe for use by several goroutines.
type refusedCommits struct {
	mu  sync.Mutex
	all []*refusedCommit
}

type refusedCommit struct{ err error }

// add adds a reason. lift removes it, and so does a rollback of the changes so far to a savepoint;
// onOutcome tells that.
func (v *refusedCommits) add(err error, onOutcome func(func(core.Outcome))) (lift func()) {
	one := &refusedCommit{err: err}
	v.mu.Lock()
	v.all = append(v.all, one)
	v.mu.Unlock()
	lift = func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.all = slices.DeleteFunc(v.all, func(r *refusedCommit) bool { return r == one })
	}
	onOutcome(func(o core.Outcome) {
		if o == core.RolledBack {
			lift()
		}
	})
	return lift
}

// standing returns the first reason that was not removed, else nil.
func (v *refusedCommits) standing() error {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.all) == 0 {
		return nil
	}
	return v.all[0].err
}

// RefuseCommit makes Commit roll back and return an error wrapping err, unless the changes so far
// are rolled back to a savepoint before, or lift is called. It is for adapters: the events of a
// statement may turn out not to be writable, and the program may ignore the error of the statement.
func (t *Tx) RefuseCommit(err error) (lift func()) { return t.refused.add(err, t.OnOutcome) }
