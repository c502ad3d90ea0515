package truth_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Without an outbox, programs do the same twice, and every kind of statement changes rows. Told
// from what the triggers saw, a program is without a fault, and every mistake in the telling is
// found.
func TestOracle(t *testing.T) {
	t.Parallel()
	eachDatabase(t, testOracle)
}

func testOracle(t *testing.T, db testdb.DB) {
	const programs = 300
	l := openLockstep(t, gormORM(), db, false)
	l.outbox.watch(true)
	applied := map[string]int{}
	l.outbox.stream = func(writes []written, models []any) []event {
		all := tell(writes)
		for name, mutate := range mutants {
			if wrong := mutate(slices.Clone(all), models); wrong != nil {
				applied[name]++
				f := compare(writes, wrong, nil, nil, &identities{})
				fixture.Check(t, f != nil, "%s: not found: told %v, stored %s", name, wrong, stored(writes))
			}
		}
		return all
	}
	for seed := range uint64(programs) {
		p := drawProgram(seed, len(l.outbox.kinds), len(l.outbox.variants))
		if f, at := l.run(p); f != nil {
			t.Errorf("seed %d: %s at %s\n%s\n%s", seed, f.class, at, f.text, l.text(p))
		}
	}
	for name := range mutants {
		fixture.Check(t, applied[name] > 0, "%s: never tried in %d programs", name, programs)
	}
	countKinds(t, []*lockstep[*gorm.DB]{l}, programs)
}

// mutants make a mistake in what is told of a step, or return nil where they cannot.
var mutants = map[string]func(all []event, models []any) []event{
	"a row is not told": func(all []event, _ []any) []event {
		if len(all) == 0 {
			return nil
		}
		return slices.Delete(all, 0, 1)
	},
	"a row is told twice": func(all []event, _ []any) []event {
		if len(all) == 0 {
			return nil
		}
		return append(all, all[0])
	},
	"a row is told late": func(all []event, _ []any) []event {
		if len(all) == 0 || all[0].written == all[len(all)-1].written {
			return nil
		}
		return append(all[1:], all[0])
	},
	"a create is told as an update": func(all []event, _ []any) []event {
		i := slices.IndexFunc(all, func(e event) bool { return strings.HasSuffix(e.typ, ".create") })
		if i < 0 {
			return nil
		}
		all[i].typ = strings.Replace(all[i].typ, ".create", ".update", 1)
		return all
	},
	"the model is told in place of the row": func(all []event, models []any) []event {
		for i, e := range all {
			for _, m := range models {
				named, ok := m.(interface{ TableName() string })
				if !ok || !strings.HasPrefix(e.typ, named.TableName()+".") {
					continue
				}
				payload, _ := json.Marshal(m)
				of, _ := tableOf(named.TableName())
				model, _ := rowOf(string(payload))
				row, _ := rowOf(e.payload)
				if slices.Equal(of.keyOf(model), of.keyOf(row)) && fmt.Sprint(model) != fmt.Sprint(row) {
					all[i].payload = string(payload)
					return all
				}
			}
		}
		return nil
	},
}

// tell tells what the triggers saw.
func tell(writes []written) (all []event) {
	for n, w := range writes {
		for _, t := range w.expected(n) {
			cells := map[string]any{}
			for name, cell := range t.row {
				if cells[name] = cell; cell == "NULL" {
					cells[name] = nil
				}
			}
			payload, _ := json.Marshal(cells)
			of, _ := tableOf(t.table)
			all = append(all, event{
				typ: t.table + "." + t.op, aggregate: strings.Join(of.keyOf(t.row), "\x00"), payload: string(payload),
				written: n,
			})
		}
	}
	return all
}

// An update to equal values counts on every database, and the triggers see it.
func TestTriggersSeeEqualValues(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		createTables(t, db, pool)
		for _, text := range reset(db.Dialect, false) {
			fixture.MustExec(t, pool, text)
		}
		fixture.MustExec(t, pool, "UPDATE tags SET qty = qty")
		conflict := "ON CONFLICT (id) DO UPDATE SET qty = excluded.qty"
		if db.Dialect == core.MySQL {
			conflict = "ON DUPLICATE KEY UPDATE qty = VALUES(qty)"
		}
		fixture.MustExec(t, pool, "INSERT INTO tags (id, name, qty) VALUES (1, 'a', 1) "+conflict)
		n, err := countChanges(t.Context(), pool)
		fixture.NoError(t, err)
		fixture.Check(t, n == 3, "the triggers saw %d changes, want 3", n)
	})
}

// A caller who is told another number of rows, another error or another model has a difference.
func TestOracleComparesOutcomes(t *testing.T) {
	t.Parallel()
	o := gormORM()
	l := openLockstep(t, o, testdb.SQLite(t), false)
	for what, change := range map[string]func(c *gormCall){
		"rows": func(c *gormCall) {
			run := c.run
			c.run = func(db *gorm.DB) (int64, error) {
				n, err := run(db)
				return n + 1, err
			}
		},
		"error":  func(c *gormCall) { c.run = func(*gorm.DB) (int64, error) { return 0, fixture.ErrNoStock } },
		"models": func(c *gormCall) { c.models = append(c.models, &gTag{ID: 99}) },
	} {
		l.outbox.kinds = slices.Clone(o.kinds)
		for i, k := range o.kinds {
			l.outbox.kinds[i].draw = func(d *draw) gormCall {
				c := k.draw(d)
				if c.publish == nil {
					change(&c)
				}
				return c
			}
		}
		for seed := range uint64(10) {
			p := drawProgram(seed, len(o.kinds), len(o.variants))
			f, _ := l.run(p)
			fixture.Check(t, f != nil && f.class == "difference", "%s: no difference in\n%s", what, l.text(p))
		}
	}
}

// A recorded event goes out once, and only if its row was changed.
func TestOracleComparesRecordedEvents(t *testing.T) {
	t.Parallel()
	changed := []written{{op: core.OpUpdate, changes: []change{{
		table: "records", op: "UPDATE", before: row{"id": "1"}, after: row{"id": "1"},
	}}}}
	out := event{typ: "recorded", aggregate: "1"}
	of := tell(changed)[0]
	other := out
	other.aggregate = "2"
	for want, events := range map[string][]event{
		"": {of, out}, "loss": {of}, "ghost": {of, out, out}, "identity": {of, other},
	} {
		f := compare(changed, events, []*recording{{
			typ: "recorded", table: "records", key: func() string { return "1" },
		}}, nil, &identities{})
		fixture.Check(t, f == nil && want == "" || f != nil && f.class == want, "%v, want %q", f, want)
	}
	f := compare(nil, []event{out}, []*recording{{
		typ: "recorded", table: "records", key: func() string { return "1" },
	}}, nil, &identities{})
	fixture.Check(t, f != nil && f.class == "ghost", "%v, want a ghost", f)
}
