package suite

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// These applications control their transaction with SQL texts, in any spelling.
func adapterTextCases() []adapterCase {
	return []adapterCase{
		{"ROLLBACK TO drops what came after the savepoint", adapterTextRollbackTo},
		{"RELEASE keeps it", adapterTextRelease},
		{"spellings", adapterTextSpellings},
		{"ROLLBACK TO twice", adapterTextTwice},
		{"one name for two savepoints", adapterTextSameName},
		{"ROLLBACK TO a name that is not set", adapterTextUnknown},
		{"ROLLBACK TO an outer savepoint drops what inner ones kept", adapterTextOuter},
		{"RELEASE of an outer savepoint takes the inner ones along", adapterTextReleaseOuter},
		{"names in quotes and in another case", adapterTextQuoted},
		{"behind a semicolon", adapterTextSemicolon},
		{"COMMIT behind the adapter's back", func(a *adapterFixture) { a.textEnd("COMMIT") }},
		{"ROLLBACK behind the adapter's back", func(a *adapterFixture) { a.textEnd("ROLLBACK") }},
		{"COMMIT in a nested transaction", adapterTextCommitNested},
		{"BEGIN behind the adapter's back", func(a *adapterFixture) { a.textImplicit("BEGIN") }},
		{
			"START TRANSACTION behind the adapter's back",
			func(a *adapterFixture) { a.textImplicit("START TRANSACTION") },
		},
		{
			"a statement that commits implicitly",
			func(a *adapterFixture) { a.textImplicit("CREATE TABLE outboxtest_implicit (n INTEGER)") },
		},
		{"control that is hard to see", adapterTextHidden},
		{"texts that only look like control", adapterTextHarmless},
		{"ROLLBACK in a comment that is executed", func(a *adapterFixture) { a.textImplicit("/*!50000 ROLLBACK */") }},
	}
}

func (a *adapterFixture) exec(ctx context.Context, query string) {
	a.Helper()
	if err := a.Exec(ctx, query); err != nil {
		a.Fatalf("%s: %v", query, err)
	}
}

func adapterTextRollbackTo(a *adapterFixture) {
	var first, lost, last string
	a.inTx(func(ctx context.Context) {
		first = a.publish(ctx)
		a.exec(ctx, "SAVEPOINT s1")
		lost = a.publish(ctx)
		a.exec(ctx, "ROLLBACK TO SAVEPOINT s1")
		a.wantOutcome(core.RolledBack, lost)
		last = a.publish(ctx)
	})
	a.wantOutcome(core.Committed, first, last)
	a.wantStored(first, last)
}

func adapterTextRelease(a *adapterFixture) {
	var ids []string
	a.inTx(func(ctx context.Context) {
		a.exec(ctx, "SAVEPOINT s1")
		ids = append(ids, a.publish(ctx))
		a.exec(ctx, "SAVEPOINT s2")
		ids = append(ids, a.publish(ctx))
		a.exec(ctx, "RELEASE SAVEPOINT s2")
		a.exec(ctx, "RELEASE SAVEPOINT s1")
		a.must(len(a.reports()) == 0, "RELEASE was taken for an end: %v", a.reports())
	})
	a.wantOutcome(core.Committed, ids...)
	a.wantStored(ids...)
}

func adapterTextSpellings(a *adapterFixture) {
	for _, s := range [][2]string{
		{"savepoint s1", "rollback to savepoint s1"},
		{"SAVEPOINT s1", "ROLLBACK TO s1"},
		{"  SavePoint\n\ts1 ", "\n RollBack\tTo   s1  "},
		{"SAVEPOINT s1;", "ROLLBACK TO SAVEPOINT s1;"},
		{"/* one */ SAVEPOINT s1", "/* two */ ROLLBACK /* three */ TO s1"},
		{"SAVEPOINT S1", "ROLLBACK TO s1"},
	} {
		var first, lost, last string
		before := a.stored()
		a.inTx(func(ctx context.Context) {
			first = a.publish(ctx)
			a.exec(ctx, s[0])
			lost = a.publish(ctx)
			a.exec(ctx, s[1])
			last = a.publish(ctx)
		})
		a.wantOutcome(core.Committed, first, last)
		a.wantOutcome(core.RolledBack, lost)
		a.wantStored(append(before, first, last)...)
	}
}

func adapterTextTwice(a *adapterFixture) {
	var lost []string
	var last string
	a.inTx(func(ctx context.Context) {
		a.exec(ctx, "SAVEPOINT s1")
		for range 3 {
			lost = append(lost, a.publish(ctx))
			a.exec(ctx, "ROLLBACK TO SAVEPOINT s1")
		}
		last = a.publish(ctx)
	})
	a.wantOutcome(core.RolledBack, lost...)
	a.wantOutcome(core.Committed, last)
	a.wantStored(last)
}

func adapterTextSameName(a *adapterFixture) {
	var ids []string
	a.inTx(func(ctx context.Context) {
		for range 3 {
			ids = append(ids, a.publish(ctx))
			a.exec(ctx, "SAVEPOINT s1")
		}
		ids = append(ids, a.publish(ctx))
		a.exec(ctx, "ROLLBACK TO SAVEPOINT s1")
		ids = append(ids, a.publish(ctx))
	})
	a.wantOutcome(core.Committed, ids[0], ids[1], ids[2], ids[4])
	a.wantOutcome(core.RolledBack, ids[3])
	a.wantStored(ids[0], ids[1], ids[2], ids[4])
}

func adapterTextUnknown(a *adapterFixture) {
	var id string
	err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
		id = a.publish(ctx)
		if err := a.Exec(ctx, "ROLLBACK TO SAVEPOINT never_set"); err == nil {
			return errors.New("ROLLBACK TO an unknown savepoint is no error")
		}
		return nil // the application ignores the error
	})
	a.must(a.noLies(id) == 0 || err == nil, "RunInTx failed with %v, and the event was reported as committed", err)
}

func adapterTextOuter(a *adapterFixture) {
	var lost []string
	var first, last string
	a.inTx(func(ctx context.Context) {
		first = a.publish(ctx)
		a.exec(ctx, "SAVEPOINT s1")
		for _, name := range []string{"s2", "s3"} {
			lost = append(lost, a.publish(ctx))
			a.exec(ctx, "SAVEPOINT "+name)
			lost = append(lost, a.publish(ctx))
		}
		a.exec(ctx, "RELEASE SAVEPOINT s3")
		a.exec(ctx, "ROLLBACK TO SAVEPOINT s1")
		a.wantOutcome(core.RolledBack, lost...)
		last = a.publish(ctx)
	})
	a.wantOutcome(core.Committed, first, last)
	a.wantStored(first, last)
}

// adapterTextReleaseOuter rolls back to a savepoint that was removed by the release of an outer
// one. The database refuses that.
func adapterTextReleaseOuter(a *adapterFixture) {
	var first, second string
	err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
		a.exec(ctx, "SAVEPOINT s1")
		first = a.publish(ctx)
		a.exec(ctx, "SAVEPOINT s2")
		second = a.publish(ctx)
		a.exec(ctx, "RELEASE SAVEPOINT s1")
		if err := a.Exec(ctx, "ROLLBACK TO SAVEPOINT s2"); err == nil {
			return errors.New("ROLLBACK TO a savepoint that was released is no error")
		}
		return nil // the application ignores the error
	})
	a.truthful(err, first, second)
}

// adapterTextQuoted leaves it to the database which names are the same. The reported outcomes must
// be true.
func adapterTextQuoted(a *adapterFixture) {
	for n := range 7 * 7 {
		var ids []string
		err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, tx core.Tx) error {
			names := savepointNames(tx.Dialect())
			ids = append(ids, a.publish(ctx))
			a.exec(ctx, "SAVEPOINT "+names[n/7])
			ids = append(ids, a.publish(ctx))
			a.exec(ctx, "SAVEPOINT "+names[n%7])
			ids = append(ids, a.publish(ctx))
			_ = a.Exec(ctx, "ROLLBACK TO SAVEPOINT "+names[n/7])
			return nil
		})
		a.truthful(err, ids[0], ids[1:]...)
	}
}

// adapterTextSemicolon hides a ROLLBACK TO behind another statement. Some drivers run both, others
// refuse them.
func adapterTextSemicolon(a *adapterFixture) {
	var first, second string
	err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
		first = a.publish(ctx)
		a.exec(ctx, "SAVEPOINT s1")
		second = a.publish(ctx)
		_ = a.Exec(ctx, "SELECT 1; ROLLBACK TO SAVEPOINT s1")
		return nil
	})
	a.truthful(err, first, second)
}

func adapterTextCommitNested(a *adapterFixture) {
	for _, nest := range a.nestings() {
		var outer, inner string
		further := newEvent()
		_ = a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
			outer = a.publish(ctx)
			_ = nest(ctx, func(ctx context.Context) error {
				inner = a.publish(ctx)
				a.exec(ctx, "COMMIT")
				return nil
			})
			a.must(a.Publish(ctx, further) != nil, "published after COMMIT")
			return nil
		})
		a.must(a.noLies(outer, inner) == 0, "the event was reported as committed after COMMIT")
		a.must(!slices.Contains(a.stored(), further.ID), "an event was recorded after COMMIT")
		a.whole()
	}
}

// textImplicit runs a statement that ends the transaction on some databases. On others it is an
// error or has no such effect. The application then rolls back. The reported outcomes must be true,
// and every recorded event must be undone by the rollback.
func (a *adapterFixture) textImplicit(query string) {
	var before string
	further, reason := newEvent(), errors.New("reason")
	published := false
	err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, tx core.Tx) error {
		before = a.publish(ctx)
		if strings.HasPrefix(query, "/*") && tx.Dialect() != core.MySQL {
			query = "SELECT 1 " + query // on these databases a comment alone is not a statement
		}
		a.Logf("%s: %v", query, a.Exec(ctx, query))
		published = a.tryPublish(ctx, further) == nil
		return reason
	})
	a.must(errors.Is(err, reason), "RunInTx returned %v, want the error of the function", err)
	ids := []string{before}
	if published {
		ids = append(ids, further.ID)
	}
	a.noLies(ids...)
	a.must(!slices.Contains(a.stored(), further.ID), "an event was recorded outside of the transaction after %s", query)
	a.whole()
}

// textEnd ends the transaction by a text. From then on the outcome is unknown to the adapter. It
// must not report an outcome that contradicts the table, and no further event is recorded.
func (a *adapterFixture) textEnd(query string) {
	var before string
	further := newEvent()
	_ = a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
		before = a.publish(ctx)
		a.exec(ctx, query)
		err := a.Publish(ctx, further)
		a.must(errors.Is(err, core.ErrTxAborted), "Publish after %s: %v, want an error wrapping ErrTxAborted", query,
			err)
		return nil
	})
	a.must(a.noLies(before) == 0, "the event was reported as committed after %s", query)
	for _, id := range a.stored() {
		a.must(id != further.ID, "an event was recorded after %s", query)
	}
	var id string
	a.inTx(func(ctx context.Context) { id = a.publish(ctx) }) // the connection still works
	a.wantOutcome(core.Committed, id)
}

// adapterTextHidden ends the transaction, or changes its savepoints, by texts that some readers
// interpret differently. The reported outcome must be true on every database, and so must the
// result of RunInTx. This holds for events recorded before and after the texts.
func adapterTextHidden(a *adapterFixture) {
	if !a.has(a.Booked != nil, nil) { // the database has no tables, and reads no SQL
		return
	}
	a = configuredFixture(a.T, a.AdapterHarness, shortLeases)
	a.relay()
	for _, control := range []string{"ROLLBACK", "COMMIT", "ROLLBACK TO SAVEPOINT s1", "END", "ABORT"} {
		for _, disguise := range []string{
			"\f%s", "\v%s", "\r%s", "\ufeff%s", "--x\r%s", "-- x\r%s", "--\n%s", "#x\n%s", ";%s", ";\f;%s",
			"/* /* */ */ %s", "/* /* */ %s", "/* /* */ %s */ SELECT 1", "/**/%s/**/", "/*!%s*/", "/*M!%s*/",
			"/*!99999 SELECT 1 */ %s", "/*!50000 %s*/ /* */", "SELECT 1;\f%s", "SELECT 1;/**/%s", "SELECT 1; -- ' \n%s",
			"SELECT '\\'; %s -- '", "SELECT '; --' ; %s", "SELECT 1 AS \"a;\"; %s", "%s;SELECT 1",
			"SELECT 1 /*! ; %s */", "SELECT $$;$$; %s", "SELECT 'a''b;';%s;", "SELECT E'\\'' ; %s",
		} {
			var before string
			after := newEvent()
			published := false
			query := strings.Replace(disguise, "%s", control, 1)
			err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, tx core.Tx) error {
				before = a.publish(ctx)
				a.exec(ctx, "SAVEPOINT s1")
				// Some drivers fail on a text that SQLite reads as a comment.
				if tx.Dialect() == core.SQLite && (query[0] == '/' || query[0] == '-') {
					query += "\nSELECT 1"
				}
				_ = a.Exec(ctx, query)
				published = a.tryPublish(ctx, after) == nil
				return nil // the application ignores the error
			})
			ids := []string{}
			if published {
				ids = append(ids, after.ID)
			}
			a.Logf("%q: %v", query, err)
			a.truthful(err, before, ids...)
		}
	}
	a.whole()
	a.waitIdle()
}

// adapterTextHarmless runs texts with transaction control only in literals, names and comments.
// They must not affect the transaction.
func adapterTextHarmless(a *adapterFixture) {
	if !a.has(a.Booked != nil, nil) {
		return
	}
	var ids []string
	a.inTx(func(ctx context.Context) {
		ids = append(ids, a.publish(ctx))
		for _, query := range []string{
			"SELECT 'ROLLBACK; COMMIT'", "SELECT 'it''s; ROLLBACK'", "SELECT 1 AS \"COMMIT\"", "SELECT 1 -- ; ROLLBACK",
			"SELECT 1 /* ; COMMIT */", "/* ROLLBACK; */ SELECT 1;", "-- COMMIT\n SELECT ';'", "SELECT 1;",
			" \n SELECT 1 ; ",
		} {
			a.exec(ctx, query)
		}
		ids = append(ids, a.publish(ctx))
	})
	a.wantOutcome(core.Committed, ids...)
	a.wantStored(ids...)
}
