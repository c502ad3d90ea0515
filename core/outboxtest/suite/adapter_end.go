package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
)

// In these cases a transaction goes on after an error that the application ignores. They check its
// own rows and its events.
func adapterEndCases() []adapterCase {
	return []adapterCase{
		{"a violated constraint that is swallowed", func(a *adapterFixture) { a.swallowedConstraint(1, 1, 2) }},
		{"a violated constraint that is swallowed last", func(a *adapterFixture) { a.swallowedConstraint(1, 2, 1) }},
		{"a violated constraint in a savepoint", adapterEndConstraintNested},
		{"a deadlock that is swallowed, and more writes", adapterEndDeadlock},
		{"a deadlock in a savepoint, and more writes", adapterEndDeadlockNested},
		{"a deadlock, and the closure is run again", adapterEndDeadlockAgain},
		{"a table whose conflicts roll everything back", adapterEndRollbackTable},
	}
}

// book writes a row of the application by the means of the ORM.
func (a *adapterFixture) book(ctx context.Context, id int) error {
	return a.Exec(ctx, fmt.Sprintf("INSERT INTO outboxtest_booking (id) VALUES (%d)", id))
}

// wantBooked requires that exactly these rows of the application are stored.
func (a *adapterFixture) wantBooked(want ...int) {
	a.Helper()
	got, err := a.Booked(a.Context())
	a.check(err)
	slices.Sort(got)
	a.must(slices.Equal(got, want), "booked are %v, want %v", got, want)
}

// swallowedConstraint books the given rows, one of them twice, and ignores the error.
func (a *adapterFixture) swallowedConstraint(ids ...int) {
	if !a.has(a.Booked != nil, nil) {
		return
	}
	var event string
	err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
		event = a.publish(ctx)
		for _, id := range ids {
			_ = a.book(ctx, id)
		}
		return nil
	})
	a.truthful(err, event)
	if a.AbortsOnError {
		a.must(errors.Is(err, core.ErrTxAborted), "COMMIT could only roll back, and RunInTx returned %v, want an "+
			"error wrapping ErrTxAborted", err)
		a.wantBooked()
		return
	}
	a.check(err) // only the statement is undone
	a.wantBooked(1, 2)
	a.wantOutcome(core.Committed, event)
}

func adapterEndConstraintNested(a *adapterFixture) {
	if !a.has(a.Booked != nil, nil) {
		return
	}
	want := []int{}
	for n, nest := range a.nestings() {
		a.inTx(func(ctx context.Context) {
			a.check(a.book(ctx, 10*n))
			err := nest(ctx, func(ctx context.Context) error { return a.book(ctx, 10*n) })
			a.must(err != nil, "the nested transaction reported success")
			a.check(a.book(ctx, 10*n+1))
		})
		want = append(want, 10*n, 10*n+1)
		a.wantBooked(want...)
	}
}

// afterDeadlock tries to go on in a transaction that the database has rolled back. No statement may
// reach the database, because it would commit on its own.
func (a *adapterFixture) afterDeadlock(ctx context.Context, nest nested) {
	a.Helper()
	for what, err := range map[string]error{
		"a statement":   a.book(ctx, 2),
		"a savepoint":   a.Exec(ctx, "SAVEPOINT s1"),
		"a transaction": nest(ctx, func(ctx context.Context) error { return a.book(ctx, 3) }),
		"Publish":       a.Publish(ctx, newEvent()),
	} {
		a.must(err != nil, "%s after the rollback reported success", what)
		a.must(a.AbortsOnError || errors.Is(err, core.ErrTxAborted), "%s after the rollback: %v, want an error "+
			"wrapping ErrTxAborted", what, err)
	}
}

func adapterEndDeadlock(a *adapterFixture) {
	if !a.has(a.Booked != nil, nil) {
		return
	}
	for _, nest := range a.nestings() {
		can := false
		err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
			a.check(a.book(ctx, 1))
			if can, _ = a.deadlock(ctx); can {
				a.afterDeadlock(ctx, nest)
			}
			return nil
		})
		if !can {
			return
		}
		a.must(errors.Is(err, core.ErrTxAborted), "RunInTx: %v, want an error wrapping ErrTxAborted", err)
		a.wantBooked()
	}
	a.whole()
}

// adapterEndDeadlockNested ends differently on each database. PostgreSQL goes on from the
// savepoint. InnoDB has rolled back the whole transaction.
func adapterEndDeadlockNested(a *adapterFixture) {
	if !a.has(a.Booked != nil, nil) {
		return
	}
	for n, nest := range a.nestings() {
		can := false
		var further error
		err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
			a.check(a.book(ctx, 10*n))
			_ = nest(ctx, func(ctx context.Context) (err error) {
				a.check(a.book(ctx, 10*n+1))
				can, err = a.deadlock(ctx)
				return err
			})
			if can {
				further = a.book(ctx, 10*n+2)
			}
			return nil
		})
		if !can {
			return
		}
		if a.AbortsOnError {
			a.must(err == nil && further == nil, "RunInTx: %v, the further statement: %v", err, further)
			a.wantBooked(slices.Sorted(slices.Values([]int{0, 2, 10, 12}[:2*n+2]))...)
			continue
		}
		a.must(errors.Is(err, core.ErrTxAborted) && errors.Is(further, core.ErrTxAborted),
			"RunInTx: %v, the further statement: %v", err, further)
		a.wantBooked()
	}
}

// adapterEndDeadlockAgain runs a transaction again after a deadlock, as every application does. The
// first attempt runs some more statements before it ends.
func adapterEndDeadlockAgain(a *adapterFixture) {
	if !a.has(a.Booked != nil, nil) {
		return
	}
	for attempt := range 2 {
		can := true
		err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) (err error) {
			a.check(a.book(ctx, 1))
			if attempt == 0 {
				can, err = a.deadlock(ctx)
			}
			_ = a.book(ctx, 2)
			return err
		})
		if !can {
			return
		}
		a.must((err == nil) == (attempt == 1), "attempt %d: %v", attempt, err)
	}
	a.wantBooked(1, 2)
}

// adapterEndRollbackTable uses a table of SQLite that rolls the transaction back on a violated
// constraint.
func adapterEndRollbackTable(a *adapterFixture) {
	if !a.has(a.Booked != nil, nil) {
		return
	}
	sqlite := false
	a.inTx(func(ctx context.Context) {
		if sqlite = a.tx(ctx).Dialect() == core.SQLite; sqlite {
			a.exec(ctx, "CREATE TABLE outboxtest_all (id INTEGER PRIMARY KEY ON CONFLICT ROLLBACK)")
			a.exec(ctx, "INSERT INTO outboxtest_all (id) VALUES (1)")
		}
	})
	if !a.has(sqlite, nil) {
		return
	}
	var event string
	err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
		event = a.publish(ctx)
		a.check(a.book(ctx, 1))
		_ = a.Exec(ctx, "INSERT INTO outboxtest_all (id) VALUES (1)")
		a.must(errors.Is(a.book(ctx, 2), core.ErrTxAborted), "a statement after the rollback was run")
		return nil
	})
	a.must(errors.Is(err, core.ErrTxAborted), "RunInTx: %v", err)
	a.noLies(event)
	a.wantStored()
	a.wantBooked()
	a.whole()
}
