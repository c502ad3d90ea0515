package pgxoutbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// protocol is a way to send statements.
type protocol struct {
	mode   pgx.QueryExecMode
	share  int  // how many programs of a thousand run with it
	native bool // by a Pool of native pgx; otherwise by Connector
}

func (p protocol) String() string {
	if p.native {
		return p.mode.String() + ", native"
	}
	return p.mode.String()
}

// sqlModes has the query modes of pgx with Connector.
var sqlModes = []protocol{
	{pgx.QueryExecModeCacheStatement, 600, false},
	{pgx.QueryExecModeCacheDescribe, 100, false},
	{pgx.QueryExecModeDescribeExec, 100, false},
	{pgx.QueryExecModeExec, 100, false},
	{pgx.QueryExecModeSimpleProtocol, 100, false},
}

// modes has those, and the same with native pgx.
var modes = func() (all []protocol) {
	for _, m := range sqlModes {
		all = append(all, m, protocol{m.mode, m.share, true})
	}
	return all
}()

// both runs a test with Connector and with native pgx, in the usual mode or in another one.
func both(t *testing.T, test func(t *testing.T, f *flights), mode ...pgx.QueryExecMode) {
	t.Helper()
	for _, m := range modes {
		if m.mode == append(mode, pgx.QueryExecModeCacheStatement)[0] {
			t.Run(m.String(), func(t *testing.T) {
				t.Parallel()
				test(t, newFlights(t, m))
			})
		}
	}
}

// Random programs run twice: over the connector of pgx itself, in sqltx.Connector, and over
// Connector, which defers events and BEGIN. They must leave the same rows, read the same numbers on
// the way, and their commits must end alike. Every outcome that is reported must be true.
func TestPgxDifferentialPrograms(t *testing.T) {
	t.Parallel()
	programs := 2500
	if testing.Short() {
		programs = 300
	}
	if n, err := strconv.Atoi(os.Getenv("OUTBOX_TEST_PROGRAMS")); err == nil && n > 0 {
		programs = n
	}
	seed, _ := strconv.ParseUint(os.Getenv("OUTBOX_TEST_SEED"), 10, 64)
	for seed == 0 {
		seed = rand.Uint64()
	}
	for _, m := range modes {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			stock := newTwin(t, func(cfg pgx.ConnConfig) driver.Connector {
				cfg.DefaultQueryExecMode = m.mode
				return sqltx.Connector(stdlib.GetConnector(cfg), core.Postgres)
			})
			ours := newTwin(t, func(cfg pgx.ConnConfig) driver.Connector {
				cfg.DefaultQueryExecMode = m.mode
				if m.native {
					return newNativeDriver(t, cfg, 2)
				}
				return pgxoutbox.Connector(pgxoutbox.Config{Conn: cfg})
			})
			ours.native = m.native
			committed, share := 0, max(1, programs*m.share/1000)
			t.Logf("seed %d\ncount: %d random programs", seed, share)
			for n := range share {
				p := newProgram(rand.New(rand.NewPCG(seed, uint64(n))), n, m.mode)
				want, got := stock.run(t, p), ours.run(t, p)
				if want.commit == nil {
					committed++
				}
				if diff := want.differs(p, got); diff != "" {
					t.Errorf("seed %d, program %d: %s\n%s\nstock: %v\nours:  %v", seed, n, diff,
						strings.Join(p.texts(), "\n"), want, got)
				}
			}
			fixture.Check(t, committed != 0, "seed %d: no program committed: they prove nothing", seed)
		})
	}
}

// twin is one of the two databases on which a program runs.
type twin struct {
	pool, direct *sql.DB
	ob           *core.Outbox
	native       bool
}

func newTwin(t *testing.T, connect func(pgx.ConnConfig) driver.Connector) *twin {
	t.Helper()
	db := testdb.Postgres(t)
	w := &twin{direct: db.Open(t), ob: fixture.NewOutbox(t, db, core.Config{})}
	db.Connect = connect
	w.pool = db.Open(t)
	fixture.MustExec(t, w.direct, "CREATE TABLE item (id INTEGER PRIMARY KEY, note TEXT)")
	fixture.MustExec(t, w.direct, "CREATE TABLE parent (id INTEGER PRIMARY KEY)")
	fixture.MustExec(t, w.direct, "CREATE TABLE child (id INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
	return w
}

// result is what a program did.
type result struct {
	rows    []string // the rows of all tables after its end
	read    []string // counts that it read
	commit  error
	heard   map[string]core.Outcome // by event
	refused bool                    // Publish has refused a duplicate, after which the server takes no statement
}

func (r result) String() string {
	return fmt.Sprintf("rows %q, read %q, commit %v, heard %v", r.rows, r.read, r.commit, r.heard)
}

// differs says how the run o over Connector differs from r, the run over pgx's own connector. It
// returns "" if they do not differ. In r, a duplicate is refused in Publish, and the server then
// refuses all statements except those that end the transaction. In o, the event waits, so the
// duplicate is refused at one of the later statements, or at COMMIT.
func (r result) differs(p *program, o result) string {
	switch {
	case (r.commit == nil) != (o.commit == nil) && (!r.refused || !p.control):
		return "one of them has committed"
	case !slices.Equal(r.rows, o.rows) && (!r.refused || !p.control):
		return "the rows differ"
	case !slices.Equal(r.read, o.read) && !r.refused:
		return "they have read other numbers"
	}
	for id, got := range o.heard {
		there := slices.ContainsFunc(o.rows, func(row string) bool { return strings.Contains(row, id) })
		if got == core.Committed && !there || got == core.RolledBack && there {
			return fmt.Sprintf("event %s was reported as %s", id, got)
		}
	}
	return ""
}

// programStep is a part of a program.
type programStep struct {
	text string // a statement, or what the step does
	do   func(ctx context.Context, s *running) error
}

// program is a random transaction. Both twins run the same.
type program struct {
	steps    []programStep
	rollback bool
	control  bool // a statement ends the transaction, or goes back to a savepoint
}

func (p *program) texts() (all []string) {
	for _, s := range p.steps {
		all = append(all, fmt.Sprintf("\t%q", s.text))
	}
	return append(all, fmt.Sprintf("\trollback %t", p.rollback))
}

// running is one run of a program.
type running struct {
	w    *twin
	conn *sql.Conn
	tx   *sql.Tx
	res  *result
}

func (s *running) exec(ctx context.Context, query string, args ...any) error {
	_, err := s.tx.ExecContext(ctx, query, args...)
	return err
}

func (s *running) count(ctx context.Context, query string, args ...any) error {
	var n int
	err := s.tx.QueryRowContext(ctx, query, args...).Scan(&n)
	if err == nil {
		s.res.read = append(s.res.read, strconv.Itoa(n))
	} else {
		s.res.read = append(s.res.read, "error")
	}
	return err
}

func (s *running) publish(ctx context.Context, e core.Event) error {
	tx, err := coreTx(ctx, s.tx, s.w.native)
	if err != nil {
		return err
	}
	if _, err = s.w.ob.Publish(ctx, tx, e); err != nil {
		s.res.refused = s.res.refused || errors.Is(err, core.ErrDuplicateEvent)
		return err
	}
	tx.OnOutcome(func(o core.Outcome) { s.res.heard[e.ID] = o })
	return nil
}

// run runs p as a transaction, in which the application ignores every error.
func (w *twin) run(t *testing.T, p *program) result {
	t.Helper()
	ctx := t.Context()
	res := result{heard: map[string]core.Outcome{}}
	conn, err := w.pool.Conn(ctx)
	fixture.NoError(t, err)
	defer conn.Close()
	s := &running{w: w, conn: conn, res: &res}
	if s.tx, err = conn.BeginTx(ctx, nil); err != nil {
		t.Fatal(err)
	}
	for i := range p.steps {
		_ = p.steps[i].do(ctx, s)
	}
	if p.rollback {
		res.commit = errors.Join(errors.New("rolled back"), s.tx.Rollback())
	} else {
		res.commit = s.tx.Commit()
	}
	for _, query := range []string{
		"SELECT 'item ' || id || coalesce(note, '') FROM item ORDER BY 1",
		"SELECT event_id || ' ' || topic || ' ' || coalesce(partition_key, '') FROM outbox_event ORDER BY 1",
		"SELECT 'child ' || id FROM child ORDER BY 1",
	} {
		res.rows = append(res.rows, fixture.Query(t, w.direct, query, func(r *sql.Rows) (s string, err error) {
			return s, r.Scan(&s)
		})...)
	}
	fixture.MustExec(t, w.direct, "TRUNCATE item, child, outbox_event, outbox_key")
	return res
}

// newProgram makes program n. Where pgx itself keeps no prepared statements, it may deallocate all
// of them.
func newProgram(rng *rand.Rand, n int, mode pgx.QueryExecMode) *program {
	p := &program{rollback: rng.IntN(8) == 0}
	id := 0
	next := func() int { id++; return 100*n + id }
	var events []string
	pick := func(all ...string) string { return all[rng.IntN(len(all))] }
	statement := func(query string, args ...any) {
		p.steps = append(p.steps, programStep{query, func(ctx context.Context, s *running) error {
			return s.exec(ctx, query, args...)
		}})
	}
	count := func(query string, args ...any) {
		p.steps = append(p.steps, programStep{query, func(ctx context.Context, s *running) error {
			return s.count(ctx, query, args...)
		}})
	}
	for range 2 + rng.IntN(8) {
		kinds := 27
		if mode == pgx.QueryExecModeCacheStatement {
			kinds--
		}
		switch rng.IntN(kinds) {
		case 0, 1, 2, 3, 4, 5:
			e := core.Event{ID: core.NewEventID(), Type: "thing.happened", Topic: "topic", Payload: []byte("{}")}
			e.Key = pick("", "a", "b", "c")
			e.Eager = rng.IntN(8) == 0
			if len(events) > 0 && rng.IntN(8) == 0 {
				e.ID = events[rng.IntN(len(events))] // a duplicate
			}
			events = append(events, e.ID)
			p.steps = append(p.steps, programStep{
				"publish " + e.ID + e.Key,
				func(ctx context.Context, s *running) error {
					return s.publish(ctx, e)
				},
			})
		case 6, 7:
			statement("INSERT INTO item (id, note) VALUES ($1, $2)", next(), pick("x", "a;b", "commit"))
		case 8:
			statement(fmt.Sprintf("INSERT INTO item (id, note) VALUES (%d, '%s')", next(), pick("x", "a;b", "it''s")))
		case 9:
			statement("INSERT INTO item (id) VALUES ($1)", max(1, 100*n+id)) // often there already
		case 10:
			statement(pick("INSERT INTO no_such_table VALUES (1)", "SELECT 1/0", "SELEC 1", "SELECT FROM WHERE",
				"INSERT INTO item (id) VALUES ('x')", "COMMIT x y", "SELECT 1; SELEC 2"))
		case 11:
			// pgx refuses the one, and the server the other
			statement("INSERT INTO item (id) VALUES ($1)", pick("no number", "1e99"))
		case 12, 13:
			count("SELECT COUNT(*) FROM item")
		case 14, 15:
			count(pick("SELECT COUNT(*) FROM outbox_event", `SELECT COUNT(*) FROM "outbox_event"`,
				"SELECT COUNT(*) FROM OUTBOX_EVENT WHERE key_seq IS NULL", "/* a */ SELECT COUNT(*) FROM outbox_key",
				`SELECT COUNT(*) FROM U&"\006futbox_event"`))
		case 16:
			query, arg := "SELECT COUNT(*) FROM item WHERE id > $1", next()-5
			p.steps = append(p.steps, programStep{"prepared " + query, func(ctx context.Context, s *running) error {
				stmt, err := s.tx.PrepareContext(ctx, query)
				if err != nil {
					s.res.read = append(s.res.read, "error")
					return err
				}
				defer stmt.Close()
				var n int
				if err := stmt.QueryRowContext(ctx, arg).Scan(&n); err != nil {
					s.res.read = append(s.res.read, "error")
					return err
				}
				s.res.read = append(s.res.read, strconv.Itoa(n))
				return nil
			}})
		case 17:
			query := pick("SAVEPOINT s", "ROLLBACK TO s", "COMMIT", "SELECT COUNT(*) FROM outbox_event", "SELEC 1")
			p.control = p.control || query == "COMMIT" || query == "ROLLBACK TO s"
			p.steps = append(p.steps, programStep{"prepared " + query, func(ctx context.Context, s *running) error {
				stmt, err := s.tx.PrepareContext(ctx, query)
				if err != nil {
					return err
				}
				defer stmt.Close()
				_, err = stmt.ExecContext(ctx)
				return err
			}})
		case 18, 19:
			statement(pick("SAVEPOINT s", "savepoint  S", "SAVEPOINT s;", "/**/SAVEPOINT s", "SELECT 1; SAVEPOINT s"))
		case 20:
			p.control = true // goes back to before the refused statement
			statement(pick("ROLLBACK TO s", "ROLLBACK  TO SAVEPOINT S", "--x\rROLLBACK TO s",
				"/* /* */ */ ROLLBACK TO s",
				"SELECT 1;\fROLLBACK TO s"))
		case 21:
			statement(pick("RELEASE s", "RELEASE SAVEPOINT s;", "\nRELEASE s"))
		case 22:
			statement(pick("SET LOCAL work_mem = '1MB'", "LOCK TABLE item", "DO $$ BEGIN PERFORM 1; END $$",
				"EXPLAIN SELECT 1", "SET CONSTRAINTS ALL IMMEDIATE", "NOTIFY a",
				"SELECT set_config('work_mem', '1MB', true)", "CREATE TEMPORARY TABLE t (a int) ON COMMIT DROP",
				"INSERT INTO child VALUES (1)"))
		case 23:
			p.control = true
			if rng.IntN(2) == 0 {
				statement(pick("COMMIT", "\fCOMMIT", "--x\rCOMMIT", "/* /* */ */ COMMIT", "SELECT 1;\fCOMMIT", "END",
					"SELECT 1;--\rCOMMIT", "COMMIT AND CHAIN", "\fCOMMIT AND CHAIN"))
			} else {
				statement(pick("ROLLBACK", "\fROLLBACK", "--x\rROLLBACK", "/* /* */ */ ROLLBACK", "ABORT",
					"SELECT 1;\fROLLBACK",
					"ROLLBACK AND CHAIN"))
			}
		case 24:
			row := next()
			p.steps = append(p.steps, programStep{"COPY in Raw", func(ctx context.Context, s *running) error {
				return s.conn.Raw(func(dc any) error {
					conn, err := pgxConn(dc)
					if err != nil {
						return err
					}
					_, err = conn.CopyFrom(ctx, pgx.Identifier{"item"}, []string{"id"},
						pgx.CopyFromRows([][]any{{row}}))
					return err
				})
			}})
		case 25:
			p.steps = append(p.steps, programStep{"Flush", func(ctx context.Context, s *running) error {
				tx, err := coreTx(ctx, s.tx, s.w.native)
				if err != nil {
					return err
				}
				return sqltx.Flush(ctx, tx)
			}})
		case 26:
			statement(pick("DEALLOCATE ALL", "deallocate prepare all;"))
		}
	}
	return p
}

// pgxConn returns the connection of pgx behind a connection of either twin.
func pgxConn(dc any) (*pgx.Conn, error) {
	if conn, err := pgxoutbox.Conn(dc); err == nil {
		return conn, nil
	}
	if c, ok := dc.(*nativeConn); ok {
		return c.pgx()
	}
	if c, ok := dc.(interface{ Raw() driver.Conn }); ok {
		dc = c.Raw()
	}
	std, ok := dc.(*stdlib.Conn)
	if !ok {
		return nil, fmt.Errorf("no connection of pgx: %T", dc)
	}
	return std.Conn(), nil
}
