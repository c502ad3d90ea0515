package pgxoutbox_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// keeper commits events over one connection, and sees how their INSERT is sent.
type keeper struct {
	*flights
	pool *sql.DB
	wire func() *wire
}

func (f *flights) keeper(cfg pgxoutbox.Config) *keeper {
	f.Helper()
	k := &keeper{flights: f}
	k.pool, k.wire = f.open(cfg)
	f.Cleanup(func() { _ = k.pool.Close() })
	return k
}

// try commits events that wait until COMMIT. parsed says whether the text of the INSERT was sent.
// named says whether the name of a statement that Connector prepares was sent.
func (k *keeper) try(events ...core.Event) (parsed, named bool, err error) {
	k.Helper()
	tx := k.begin(k.pool, nil)
	tx.exec("INSERT INTO item (id) VALUES ($1)", k.n.Add(1))
	tx.publish(events...)
	k.wire().arm(-1, -1)
	err = tx.Commit()
	sent := k.wire().written()
	return strings.Contains(sent, "INSERT INTO"), strings.Contains(sent, "\x00outbox_") ||
		strings.Contains(sent, "Soutbox_"), err
}

// commits requires that an event of a key is committed, and that its INSERT is sent in this way.
func (k *keeper) commits(what string, wantParsed, wantNamed bool) {
	k.Helper()
	e := event("k")
	parsed, named, err := k.try(e)
	if err != nil || !k.stored(e.ID) {
		k.Errorf("%s: %v, stored: %t", what, err, k.stored(e.ID))
	}
	fixture.Check(k, parsed == wantParsed && named == wantNamed,
		"%s: the text was sent: %t, a name was sent: %t; want %t, %t", what, parsed, named, wantParsed, wantNamed)
}

// The INSERT of a flight is prepared in the second flight that has it, and executed by its name
// from then on, in every query mode of pgx that does not prepare all statements itself.
func TestPgxFlightKeepsItsInsert(t *testing.T) {
	t.Parallel()
	for _, m := range modes {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			k := newFlights(t, m).keeper(pgxoutbox.Config{})
			if m.mode == pgx.QueryExecModeCacheStatement {
				for range 4 {
					if _, named, err := k.try(event("k")); err != nil || named {
						t.Errorf("pgx prepares by itself: a name of ours was sent: %t, %v", named, err)
					}
				}
				return
			}
			k.commits("first", true, false)
			k.commits("second", true, true)
			for range 8 { // meanwhile the server changes to a generic plan
				k.commits("later", false, true)
			}
			for n, want := range []bool{true, true, false} { // two events have another text
				a, b := event("k"), event("")
				parsed, named, err := k.try(a, b)
				fixture.Check(t, err == nil && k.stored(a.ID) && k.stored(b.ID) && parsed == want && named == (n > 0),
					"two events: %v, the text was sent: %t, a name was sent: %t", err, parsed, named)
			}
			k.commits("one event again", false, true)
		})
	}
}

// A duplicate leaves the statement prepared, also in the flight that prepares it.
func TestPgxFlightKeepsItsInsertAfterADuplicate(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flights) {
		k := f.keeper(pgxoutbox.Config{})
		first := event("k")
		if _, _, err := k.try(first); err != nil {
			t.Fatal(err)
		}
		pid := k.pid(k.pool)
		for n, wantParsed := range []bool{true, false, false} {
			parsed, named, err := k.try(first)
			if !errors.Is(err, core.ErrDuplicateEvent) || !strings.Contains(err.Error(), first.ID) ||
				errors.Is(err, core.ErrCommitUnknown) {
				t.Errorf("duplicate %d: %v", n, err)
			}
			fixture.Check(t, parsed == wantParsed && named,
				"duplicate %d: the text was sent: %t, a name was sent: %t", n, parsed, named)
		}
		k.commits("after the duplicates", false, true)
		fixture.Check(t, k.pid(k.pool) == pid, "the connection was closed")
	}, pgx.QueryExecModeSimpleProtocol)
}

// Connector prepares nothing if that is turned off, if it does not see everything that is sent on
// the connection, and behind a pooler.
func TestPgxFlightKeepsNothing(t *testing.T) {
	t.Parallel()
	never := func(t *testing.T, k *keeper) {
		for range 4 {
			k.commits("a flight", true, false)
		}
	}
	t.Run("DisablePrepare", func(t *testing.T) {
		t.Parallel()
		f := newFlights(t, protocol{mode: pgx.QueryExecModeSimpleProtocol})
		f.ob = fixture.NewOutbox(t, f.db, core.Config{DisablePrepare: true})
		never(t, f.keeper(pgxoutbox.Config{}))
	})
	t.Run("EagerBegin", func(t *testing.T) {
		t.Parallel()
		never(t, newFlights(t, protocol{mode: pgx.QueryExecModeExec}).keeper(pgxoutbox.Config{EagerBegin: true}))
	})
	for _, p := range poolerModes {
		t.Run("PgBouncer, "+p.String(), func(t *testing.T) {
			t.Parallel()
			k := newFlightsOn(t, testdb.PgBouncer(t), p).keeper(pgxoutbox.Config{})
			for n := range 4 {
				parsed, named, err := k.try(event("k"))
				// With a cache of descriptions, pgx sends the text of an unnamed statement.
				fixture.Check(t, err == nil && !named && parsed,
					"flight %d: %v, the text was sent: %t, a name was sent: %t", n, err, parsed, named)
			}
		})
	}
}

// forgetters has ways to make the server forget prepared statements. The savepoint forgets nothing,
// but Connector does not know that.
var forgetters = []struct {
	name string
	do   func(ctx context.Context, k *keeper) error
}{
	{"DISCARD ALL", text("DISCARD ALL")},
	{"DEALLOCATE ALL", text("deallocate all")},
	{"comment in front", text("/* /* */ */ DEALLOCATE ALL")},
	{"form feed in front", text("\fDEALLOCATE PREPARE ALL")},
	{"several statements", text("SELECT 1; DEALLOCATE ALL")},
	{"DO", text(deallocates)},
	{"DO, prepared", prepared(deallocates)}, // here the semicolon in the text does not separate statements
	{"in a transaction", func(ctx context.Context, k *keeper) error {
		tx := k.begin(k.pool, nil)
		tx.exec("DEALLOCATE ALL")
		return tx.Commit()
	}},
	{"in a transaction that is rolled back", func(ctx context.Context, k *keeper) error {
		tx := k.begin(k.pool, nil)
		tx.exec("DEALLOCATE ALL")
		return tx.Rollback()
	}},
	{"a savepoint, which forgets nothing", func(ctx context.Context, k *keeper) error {
		tx := k.begin(k.pool, nil)
		tx.exec("SAVEPOINT s")
		return tx.Commit()
	}},
	{"prepared", prepared("DEALLOCATE ALL")},
	{"Raw", func(ctx context.Context, k *keeper) error {
		conn, err := k.pool.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		return conn.Raw(func(dc any) error {
			own, err := pgxConn(dc)
			if err != nil {
				return err
			}
			return own.DeallocateAll(ctx)
		})
	}},
}

const deallocates = "DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$"

func prepared(query string) func(ctx context.Context, k *keeper) error {
	return func(ctx context.Context, k *keeper) error {
		stmt, err := k.pool.PrepareContext(ctx, query)
		if err != nil {
			return err
		}
		defer stmt.Close() // its error does not matter: the statement is deallocated already
		_, err = stmt.ExecContext(ctx)
		return err
	}
}

func text(query string) func(ctx context.Context, k *keeper) error {
	return func(ctx context.Context, k *keeper) error {
		_, err := k.pool.ExecContext(ctx, query)
		return err
	}
}

// keepingModes are two of the modes in which a connection keeps statements.
var keepingModes = slices.DeleteFunc(slices.Clone(modes), func(p protocol) bool {
	return p.mode != pgx.QueryExecModeSimpleProtocol && p.mode != pgx.QueryExecModeExec
})

// A statement that the program has deallocated is prepared again, and no COMMIT fails because of
// it.
func TestPgxFlightWhoseInsertIsForgotten(t *testing.T) {
	t.Parallel()
	for _, p := range keepingModes {
		for _, way := range forgetters {
			t.Run(p.String()+", "+way.name, func(t *testing.T) {
				t.Parallel()
				k := newFlights(t, p).keeper(pgxoutbox.Config{})
				for range 3 {
					_, _, err := k.try(event("k"))
					fixture.NoError(t, err)
				}
				fixture.NoError(t, way.do(t.Context(), k))
				k.commits("afterwards", true, true)
				k.commits("later", false, true)
			})
		}
	}
}

// A function that resets a connection before its next use makes the server forget the statements,
// and database/sql does not see that. COMMIT does not fail because of that either.
func TestPgxFlightWhoseSessionIsReset(t *testing.T) {
	t.Parallel()
	resets := 0
	f := newFlights(t, protocol{mode: pgx.QueryExecModeSimpleProtocol})
	k := f.keeper(pgxoutbox.Config{Options: []stdlib.OptionOpenDB{
		stdlib.OptionResetSession(func(ctx context.Context, conn *pgx.Conn) error {
			resets++
			_, err := conn.Exec(ctx, "DISCARD ALL")
			return err
		}),
	}})
	k.commits("first", true, false)
	for range 4 {
		k.commits("later", true, true)
	}
	fixture.Check(t, resets >= 4, "%d resets", resets)
}

// A function of the database makes the server forget a statement, and Connector cannot see that.
// The transaction whose COMMIT needed the statement is rolled back, and Commit says so. This pool
// then prepares nothing any more.
func TestPgxFlightWhoseInsertIsForgottenUnseen(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flights) {
		fixture.MustExec(t, f.direct, `CREATE FUNCTION forget() RETURNS int LANGUAGE plpgsql AS
			$$ BEGIN EXECUTE 'DEALLOCATE ALL'; RETURN 1; END $$`)
		k := f.keeper(pgxoutbox.Config{})
		pid := k.pid(k.pool)
		for range 3 {
			_, _, err := k.try(event("k"))
			fixture.NoError(t, err)
		}
		tx := k.begin(k.pool, nil)
		tx.exec("SELECT forget()")
		fixture.NoError(t, tx.Commit())
		e := event("k")
		if _, _, err := k.try(e); !isCode(err, "26000") || errors.Is(err, core.ErrCommitUnknown) || k.stored(e.ID) {
			t.Errorf("Commit: %v, stored: %t, want the error of the server", err, k.stored(e.ID))
		}
		for range 4 {
			k.commits("later", true, false)
		}
		fixture.Check(t, k.pid(k.pool) == pid, "the connection was closed")
	}, pgx.QueryExecModeSimpleProtocol)
}

// A table is changed after a statement was prepared. The next transaction that executes the
// statement is rolled back, and Commit says so. The statement is prepared again.
func TestPgxFlightWhoseTableChanges(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flights) {
		k := f.keeper(pgxoutbox.Config{})
		for range 3 {
			_, _, err := k.try(event("k"))
			fixture.NoError(t, err)
		}
		fixture.MustExec(t, f.direct, "ALTER TABLE outbox_key ALTER COLUMN last_seq TYPE numeric")
		e := event("k")
		if _, _, err := k.try(e); !isCode(err, "0A000") || errors.Is(err, core.ErrCommitUnknown) || k.stored(e.ID) {
			t.Errorf("Commit: %v, stored: %t, want the error of the server", err, k.stored(e.ID))
		}
		k.commits("afterwards", true, true)
		k.commits("later", false, true)
	}, pgx.QueryExecModeSimpleProtocol)
}

// Package sqltx prepares the INSERT of Eager events. It does not count INSERTs of events that wait.
// Its statements can be forgotten too, and are prepared again.
func TestPgxEagerInsertIsForgotten(t *testing.T) {
	t.Parallel()
	for _, p := range keepingModes {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			k := newFlights(t, p).keeper(pgxoutbox.Config{})
			publish := func(eager ...bool) {
				t.Helper()
				tx := k.begin(k.pool, nil)
				for _, eager := range eager {
					e := event("k")
					e.Eager = eager
					tx.publish(e)
				}
				fixture.NoError(t, tx.Commit())
			}
			publish(true, false, true)
			publish(true)
			fixture.NoError(t, text("DEALLOCATE ALL")(t.Context(), k))
			publish(true)
			publish(false)
			k.wantEvents(6)
		})
	}
}

// A connection keeps a bounded number of statements, whatever events are published.
func TestPgxFlightKeepsFewInserts(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flights) {
		k := f.keeper(pgxoutbox.Config{})
		for n := range 24 {
			for range 3 {
				var events []core.Event
				for range n + 1 {
					events = append(events, event("k"))
				}
				if _, _, err := k.try(events...); err != nil {
					t.Fatal(err)
				}
			}
		}
		var kept int
		fixture.NoError(t, k.pool.QueryRowContext(t.Context(),
			"SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'outbox%'").Scan(&kept))
		fixture.Check(t, kept == 16, "%d statements are prepared, want 16", kept)
	}, pgx.QueryExecModeSimpleProtocol)
}

// A claim is executed by its name too, and prepared again if the server may have forgotten it. If
// the server has forgotten the claim and Connector could not see that, one claim fails.
func TestPgxClaimsAreKept(t *testing.T) {
	t.Parallel()
	try := func(t *testing.T, f *flights, want ...string) {
		fixture.MustExec(t, f.direct, `CREATE FUNCTION forget() RETURNS int LANGUAGE plpgsql AS
			$$ BEGIN EXECUTE 'DEALLOCATE ALL'; RETURN 1; END $$`)
		pool, last := f.open(pgxoutbox.Config{})
		defer pool.Close()
		c := f.claims(pool)
		f.pid(pool) // connects
		for n, want := range want {
			switch want {
			case "DISCARD ALL", "SELECT forget()":
				fixture.MustExec(t, pool, want)
				continue
			}
			f.add()
			last().arm(-1, -1)
			rows, err := c.next(t.Context())
			got := "name"
			if sent := last().written(); strings.Contains(sent, "UPDATE") {
				got = "text"
				if strings.Contains(sent, "Soutbox_") {
					got = "prepare"
				}
			}
			if err != nil {
				got += " fails"
			}
			fixture.Check(t, got == want && (err != nil || len(rows) == 1 && c.holders() == 1),
				"claim %d: %s with %d rows, %v, want %s", n, got, len(rows), err, want)
		}
	}
	for _, m := range sqlModes {
		if m.mode == pgx.QueryExecModeCacheStatement {
			continue
		}
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			try(t, newFlights(t, m), "text", "prepare", "name", "name", "DISCARD ALL", "prepare", "name",
				"SELECT forget()", "name fails", "text", "text")
		})
	}
	for _, p := range poolerModes {
		if p.native {
			continue
		}
		t.Run("PgBouncer, "+p.String(), func(t *testing.T) {
			t.Parallel()
			try(t, newFlightsOn(t, testdb.PgBouncer(t), p), "text", "text", "text", "text")
		})
	}
}
