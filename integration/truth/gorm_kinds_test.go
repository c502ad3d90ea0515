package truth_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

type gormCall = call[*gorm.DB]

// statement makes a call of a function that returns what GORM's methods return.
func statement(text string, run func(db *gorm.DB) *gorm.DB, models ...any) gormCall {
	return gormCall{code: text, models: models, run: func(db *gorm.DB) (int64, error) {
		res := run(db)
		return res.RowsAffected, res.Error
	}}
}

// failing makes a call of a function that returns an error alone.
func failing(text string, run func(db *gorm.DB) error, models ...any) gormCall {
	return gormCall{code: text, models: models, run: func(db *gorm.DB) (int64, error) { return 0, run(db) }}
}

func (d *draw) parent() *gParent { return &gParent{Name: d.name(), Qty: d.qty(), Tenant: 1} }

// parentByID has a key: of a row or not.
func (d *draw) parentByID() *gParent {
	p := d.parent()
	p.ID = d.id()
	return p
}

func (d *draw) child() *gChild {
	return &gChild{ID: d.key(), Name: pick(d, "a", "b", "c"), Qty: d.qty(), Tenant: 1}
}

func (d *draw) pair() *gPair {
	return &gPair{Shop: d.shop(), Code: d.code(), Name: pick(d, "x", "y"), Qty: d.qty(), Tenant: 1}
}

func (d *draw) soft() *gSoft { return &gSoft{Name: pick(d, "a", "b", "c"), Qty: d.qty(), Tenant: 1} }

func (d *draw) softByID() *gSoft {
	s := d.soft()
	s.ID = d.id()
	return s
}

func (d *draw) tag() *gTag {
	return pick(d, &gTag{Name: "a", Qty: d.qty()}, &gTag{ID: d.id(), Name: "b", Qty: d.qty()})
}

func (d *draw) part() *gPart {
	return pick(d, &gPart{Name: "a", Qty: d.qty()}, &gPart{ID: d.id(), Name: "b", Qty: d.qty()})
}

// family is a parent with some of its associations.
func (d *draw) family() *gParent {
	p := d.parent()
	for range d.IntN(3) {
		p.Children = append(p.Children, d.child())
	}
	for range d.IntN(2) {
		p.Tags = append(p.Tags, d.tag())
	}
	if d.one(3) {
		p.Part = d.part()
	}
	return p
}

func several[T any](d *draw, one func() *T) []*T {
	all := make([]*T, 1+d.IntN(3))
	for i := range all {
		all[i] = one()
	}
	return all
}

// record records an event on a model.
func record(d *draw, c *gormCall, m *gRecord) *recording {
	typ := fmt.Sprintf("recorded.%d", d.Uint64())
	m.Record(fixture.Event(typ))
	id := m.ID
	r := &recording{
		typ: typ, table: "records", left: func() int { return len(m.Recorded()) },
		key: func() string { return fmt.Sprint(cmp.Or(id, m.ID)) }, // a key of zero is generated
	}
	c.recs = append(c.recs, r)
	c.code += " // with a recorded event"
	return r
}

func (d *draw) record() *gRecord {
	return &gRecord{ID: d.id(), Name: pick(d, "a", "b", "c"), Qty: d.qty(), Tenant: 1}
}

// conflict is a clause of an upsert into a table with these columns.
func (d *draw) conflict(table string, key ...string) (string, clause.OnConflict) {
	columns := func(names ...string) (all []clause.Column) {
		for _, n := range names {
			all = append(all, clause.Column{Name: n})
		}
		return all
	}
	switch d.IntN(5) {
	case 0:
		return "clause.OnConflict{DoNothing: true}", clause.OnConflict{DoNothing: true}
	case 1:
		return "clause.OnConflict{UpdateAll: true}", clause.OnConflict{UpdateAll: true}
	case 2:
		return fmt.Sprintf("clause.OnConflict{Columns: %v, DoUpdates: clause.AssignmentColumns(qty)}", key),
			clause.OnConflict{Columns: columns(key...), DoUpdates: clause.AssignmentColumns([]string{"qty"})}
	case 3:
		plus := gorm.Expr(table + ".qty + 1")
		return fmt.Sprintf("clause.OnConflict{Columns: %v, DoUpdates: clause.Assignments(qty: qty + 1)}", key),
			clause.OnConflict{Columns: columns(key...), DoUpdates: clause.Assignments(map[string]any{"qty": plus})}
	default:
		if table != "parents" {
			return "clause.OnConflict{UpdateAll: true}", clause.OnConflict{UpdateAll: true}
		}
		return "clause.OnConflict{Columns: name, DoUpdates: clause.AssignmentColumns(qty)}",
			clause.OnConflict{Columns: columns("name"), DoUpdates: clause.AssignmentColumns([]string{"qty"})}
	}
}

func upsert[T any](d *draw, table string, one func() *T, key ...string) gormCall {
	text, conflict := d.conflict(table, key...)
	var models any = one()
	if d.one(2) {
		models = several(d, one)
	}
	return batch(d, statement(code("db.Clauses(%s).Create(%s)", raw(text), models), func(db *gorm.DB) *gorm.DB {
		return db.Clauses(conflict).Create(models)
	}, models))
}

// batch makes a call that is perhaps an upsert of several rows. MariaDB and MySQL do not name the
// rows of each.
func batch(d *draw, c gormCall) gormCall {
	c.refusable = d.dialect == core.MySQL
	return c
}

func create(model any) gormCall {
	return statement(code("db.Create(%s)", model), func(db *gorm.DB) *gorm.DB { return db.Create(model) }, model)
}

func save(model any) gormCall {
	return statement(code("db.Save(%s)", model), func(db *gorm.DB) *gorm.DB { return db.Save(model) }, model)
}

// loaded reads a row before it saves it with another qty.
func loaded[T any](d *draw, where string, args []any, change func(*T)) gormCall {
	var m T
	return statement(code("var m %s; db.First(&m, %s); m.Qty = ...; db.Save(&m)", raw(typeName[T]()),
		condition{where, args}), func(db *gorm.DB) *gorm.DB {
		if res := db.Where(where, args...).First(&m); res.Error != nil {
			return res
		}
		change(&m)
		return db.Save(&m)
	}, &m)
}

func typeName[T any]() string { return strings.TrimPrefix(fmt.Sprintf("%T", *new(T)), "truth_test.") }

// update makes Model(model).Updates(values), with conditions.
func update(model, values any, where ...condition) gormCall {
	text := code("db.Model(%s)", model)
	for _, w := range where {
		text += code(".Where(%s)", w)
	}
	return statement(text+code(".Updates(%s)", values), func(db *gorm.DB) *gorm.DB {
		db = db.Model(model)
		for _, w := range where {
			db = db.Where(w.text, w.args...)
		}
		return db.Updates(values)
	}, model)
}

// expr is an expression, printed as the code that makes it.
func expr(text string) clause.Expr { return gorm.Expr(text) }

func remove(model any, where ...condition) gormCall {
	text := "db"
	for _, w := range where {
		text += code(".Where(%s)", w)
	}
	return statement(text+code(".Delete(%s)", model), func(db *gorm.DB) *gorm.DB {
		for _, w := range where {
			db = db.Where(w.text, w.args...)
		}
		return db.Delete(model)
	}, model)
}

// qty are new values of a row.
func (d *draw) values() map[string]any {
	v := map[string]any{"qty": d.qty()}
	if d.one(3) {
		v["name"] = d.name()
	}
	return v
}

func plusOne() map[string]any { return map[string]any{"qty": expr("qty + 1")} }

// sorted sorts what RETURNING gave, because the order is the database's.
func sorted[T any](all []T) {
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(literal(a), literal(b)) })
}

func gormKinds() []kind[*gorm.DB] {
	return slices.Concat(gormWrites(), gormUpdates(), gormDeletes(), gormAssociations(), gormGenerics(), gormRecorded())
}

func gormWrites() []kind[*gorm.DB] {
	return []kind[*gorm.DB]{
		{name: "create p", draw: func(d *draw) gormCall { return batch(d, create(d.family())) }},
		{name: "create p, a batch", draw: func(d *draw) gormCall {
			all := several(d, d.parent)
			size := 1 + d.IntN(2)
			c := statement(code("db.CreateInBatches(%s, %s)", all, size), func(db *gorm.DB) *gorm.DB {
				return db.CreateInBatches(all, size)
			}, all)
			c.nested = true
			return c
		}},
		{name: "create s", draw: func(d *draw) gormCall { return create(d.soft()) }},
		{name: "create k", draw: func(d *draw) gormCall { return create(several(d, d.child)) }},
		{name: "create with a hook that writes", draw: func(d *draw) gormCall {
			return create(&gHook{Name: "h", Qty: d.qty()})
		}},
		{name: "upsert p", draw: func(d *draw) gormCall {
			return upsert(d, "parents", pick(d, d.parent, d.parentByID), "id")
		}},
		{name: "upsert k", draw: func(d *draw) gormCall { return upsert(d, "children", d.child, "id") }},
		{name: "upsert c", draw: func(d *draw) gormCall { return upsert(d, "pairs", d.pair, "shop", "code") }},
		{name: "save p", draw: func(d *draw) gormCall {
			return loaded(d, "id = ?", []any{d.id()}, func(p *gParent) { p.Qty += d.qty() })
		}},
		{name: "save p by key", draw: func(d *draw) gormCall { return save(d.parentByID()) }},
		{name: "save p with children", draw: func(d *draw) gormCall {
			p := d.family()
			p.ID = d.id()
			return batch(d, save(p))
		}},
		{name: "save p, several", draw: func(d *draw) gormCall {
			return batch(d, save(several(d, d.parentByID)))
		}},
		{name: "save k", draw: func(d *draw) gormCall { return save(d.child()) }},
		{name: "save c", draw: func(d *draw) gormCall { return save(d.pair()) }},
		{name: "save s", draw: func(d *draw) gormCall { return save(d.softByID()) }},
		{name: "first or create", draw: func(d *draw) gormCall {
			p, name, qty := &gParent{}, d.name(), d.qty()
			where, assign := gParent{Name: name}, gParent{Qty: qty, Tenant: 1}
			return statement(code("db.Where(%s).Assign(%s).FirstOrCreate(%s)", where, assign, p),
				func(db *gorm.DB) *gorm.DB { return db.Where(where).Assign(assign).FirstOrCreate(p) }, p)
		}},
		{name: "find in batches with save", draw: func(d *draw) gormCall {
			var all []gParent
			w, q := d.condition(), d.qty()
			return statement(code("db.Where(%s).FindInBatches(&all, 2, ...Qty = %s; tx.Save(&all))", w, q),
				func(db *gorm.DB) *gorm.DB {
					return db.Where(w.text, w.args...).FindInBatches(&all, 2, func(tx *gorm.DB, _ int) error {
						for i := range all {
							all[i].Qty = q
						}
						return tx.Save(&all).Error
					})
				}, &all)
		}},
		{name: "publish", draw: func(d *draw) gormCall {
			typ := fmt.Sprintf("published.%d", d.Uint64())
			return gormCall{
				code: code("gormoutbox.Publish(ctx, db, core.Event{Type: %s})", typ), published: typ,
				publish: func(db *gorm.DB) error {
					return gormoutbox.Publish(db.Statement.Context, db, fixture.Event(typ))
				},
			}
		}},
	}
}

func gormUpdates() []kind[*gorm.DB] {
	return []kind[*gorm.DB]{
		{name: "model update", draw: func(d *draw) gormCall {
			m, q := d.parentByID(), d.qty()
			return statement(code(`db.Model(%s).Update("qty", %s)`, m, q), func(db *gorm.DB) *gorm.DB {
				return db.Model(m).Update("qty", q)
			}, m)
		}},
		{name: "model update with where", draw: func(d *draw) gormCall {
			return update(d.parentByID(), d.values(), d.condition())
		}},
		{name: "model update with map", draw: func(d *draw) gormCall { return update(d.child(), d.values()) }},
		{name: "model update with struct", draw: func(d *draw) gormCall {
			return update(&gParent{ID: d.id()}, gParent{Name: d.name(), Qty: d.qty()})
		}},
		{name: "model update with itself", draw: func(d *draw) gormCall {
			m := d.parentByID()
			return statement(code("db.Updates(%s)", m), func(db *gorm.DB) *gorm.DB { return db.Updates(m) }, m)
		}},
		{name: "model update with expression", draw: func(d *draw) gormCall {
			return update(d.parentByID(), plusOne())
		}},
		{name: "model update with expression and where", draw: func(d *draw) gormCall {
			return update(d.parentByID(), plusOne(), d.condition())
		}},
		{name: "model update with or", draw: func(d *draw) gormCall {
			m, w, or, v := d.child(), d.condition(), d.condition(), d.values()
			return statement(code("db.Model(%s).Where(%s).Or(%s).Updates(%s)", m, w, or, v),
				func(db *gorm.DB) *gorm.DB {
					return db.Model(m).Where(w.text, w.args...).Or(or.text, or.args...).Updates(v)
				}, m)
		}},
		{name: "update columns", draw: func(d *draw) gormCall {
			m, v := &gParent{ID: d.id()}, gParent{Qty: d.qty()}
			return statement(code("db.Model(%s).UpdateColumns(%s)", m, v), func(db *gorm.DB) *gorm.DB {
				return db.Model(m).UpdateColumns(v)
			}, m)
		}},
		{name: "update selected", draw: func(d *draw) gormCall {
			m := d.parentByID()
			return statement(code(`db.Select("qty").Updates(%s)`, m), func(db *gorm.DB) *gorm.DB {
				return db.Select("qty").Updates(m)
			}, m)
		}},
		{name: "where update", draw: func(d *draw) gormCall {
			return update(&gParent{}, map[string]any{"qty": d.qty()}, d.condition())
		}},
		{name: "where update with struct", draw: func(d *draw) gormCall {
			return update(&gChild{}, gChild{Qty: d.qty()}, d.condition())
		}},
		{name: "where update with expression", draw: func(d *draw) gormCall {
			return update(&gChild{}, plusOne(), d.condition())
		}},
		{name: "where update unscoped", draw: func(d *draw) gormCall {
			w, v := d.condition(), map[string]any{"qty": d.qty()}
			return statement(code("db.Unscoped().Model(&gSoft{}).Where(%s).Updates(%s)", w, v),
				func(db *gorm.DB) *gorm.DB {
					return db.Unscoped().Model(&gSoft{}).Where(w.text, w.args...).Updates(v)
				})
		}},
		{name: "soft update", draw: func(d *draw) gormCall { return update(&gSoft{}, d.values(), d.condition()) }},
		{name: "restore", draw: func(d *draw) gormCall {
			m := &gSoft{ID: 1 + d.Int64N(4)}
			return statement(code(`db.Unscoped().Model(%s).Update("deleted_at", nil)`, m), func(db *gorm.DB) *gorm.DB {
				return db.Unscoped().Model(m).Update("deleted_at", nil)
			}, m)
		}},
		{name: "global update", draw: func(d *draw) gormCall {
			v := pick(d, map[string]any{"qty": d.qty()}, plusOne())
			return statement(code("db.Session(&gorm.Session{AllowGlobalUpdate: true}).Model(&gTag{}).Updates(%s)", v),
				func(db *gorm.DB) *gorm.DB {
					return db.Session(&gorm.Session{AllowGlobalUpdate: true}).Model(&gTag{}).Updates(v)
				})
		}},
		{name: "update with limit", draw: func(d *draw) gormCall {
			w, q, order := d.condition(), d.qty(), pick(d, "", "qty desc, id")
			return statement(code(`db.Model(&gChild{}).Where(%s).Order(%s).Limit(2).Update("qty", %s)`, w, order, q),
				func(db *gorm.DB) *gorm.DB {
					return db.Model(&gChild{}).Where(w.text, w.args...).Order(order).Limit(2).Update("qty", q)
				})
		}},
		{name: "slice update", draw: func(d *draw) gormCall {
			all := several(d, d.parentByID)
			if d.one(4) {
				all[len(all)-1].ID = 0 // GORM then leaves out the condition of the others' keys
			}
			return update(all, map[string]any{"qty": d.qty()}, d.condition())
		}},
		// MariaDB has no UPDATE with RETURNING, and GORM sends it nevertheless.
		{name: "update returning into a slice", idle: "mariadb", draw: func(d *draw) gormCall {
			var all []gChild
			w, q := d.uncommented(), d.qty()
			return statement(code(`db.Model(&all).Clauses(clause.Returning{}).Where(%s).Update("qty", %s)`, w, q),
				func(db *gorm.DB) *gorm.DB {
					res := db.Model(&all).Clauses(clause.Returning{}).Where(w.text, w.args...).Update("qty", q)
					sorted(all)
					return res
				}, &all)
		}},
		{name: "update returning into the model", idle: "mariadb", draw: func(d *draw) gormCall {
			m := d.parentByID()
			return statement(code(`db.Model(%s).Clauses(clause.Returning{}).Updates(qty + 1)`, m),
				func(db *gorm.DB) *gorm.DB {
					return db.Model(m).Clauses(clause.Returning{}).Updates(plusOne())
				}, m)
		}},
		{name: "c update", draw: func(d *draw) gormCall { return update(d.pair(), d.values()) }},
		{name: "c update of a part of the key", draw: func(d *draw) gormCall {
			return update(&gPair{Shop: d.shop()}, map[string]any{"qty": d.qty()})
		}},
		{name: "c key change", draw: func(d *draw) gormCall {
			return update(d.pair(), map[string]any{"code": d.code(), "qty": d.qty()})
		}},
		{name: "k partial", draw: func(d *draw) gormCall {
			return update(&gChild{ID: d.key()}, map[string]any{"name": "p"})
		}},
		{name: "k key change", draw: func(d *draw) gormCall {
			m, key := &gChild{ID: d.key()}, d.key()
			return statement(code(`db.Model(%s).Update("id", %s)`, m, key), func(db *gorm.DB) *gorm.DB {
				return db.Model(m).Update("id", key)
			}, m)
		}},
		{name: "k struct with another id", draw: func(d *draw) gormCall {
			return update(&gChild{ID: d.key()}, *d.child())
		}},
		{name: "p partial", draw: func(d *draw) gormCall {
			return update(&gParent{ID: d.id()}, map[string]any{"qty": d.qty()})
		}},
		{name: "update of nothing", idle: "all", draw: func(d *draw) gormCall {
			return update(&gChild{ID: d.key()}, pick[any](d, gChild{}, map[string]any{}))
		}},
		{name: "optimistic lock", draw: func(d *draw) gormCall {
			return update(&gLock{ID: d.id(), Version: version(1 + d.IntN(2))}, map[string]any{"qty": d.qty()})
		}},
		{name: "update with a flag of deletion", draw: func(d *draw) gormCall {
			return update(&gFlag{ID: d.id()}, map[string]any{"qty": d.qty()})
		}},
	}
}

func gormDeletes() []kind[*gorm.DB] {
	return []kind[*gorm.DB]{
		{name: "delete p", draw: func(d *draw) gormCall { return remove(&gParent{ID: d.id()}) }},
		{name: "delete p with children", draw: func(d *draw) gormCall {
			// Both at once are deleted in an order that GORM draws.
			m, name := &gParent{ID: d.id()}, pick(d, "Children", "Tags")
			return statement(code(`db.Select(%s).Delete(%s)`, name, m), func(db *gorm.DB) *gorm.DB {
				return db.Select(name).Delete(m)
			}, m)
		}},
		{name: "delete k", draw: func(d *draw) gormCall { return remove(&gChild{ID: d.key()}) }},
		{name: "delete by id", draw: func(d *draw) gormCall {
			id := d.id()
			return statement(code("db.Delete(&gParent{}, %s)", id), func(db *gorm.DB) *gorm.DB {
				return db.Delete(&gParent{}, id)
			})
		}},
		{name: "delete ids", draw: func(d *draw) gormCall {
			ids := []string{d.key(), d.key()}
			return statement(code("db.Delete(&gChild{}, %s)", ids), func(db *gorm.DB) *gorm.DB {
				return db.Delete(&gChild{}, "id IN ?", ids)
			})
		}},
		{name: "delete several", draw: func(d *draw) gormCall { return remove(several(d, d.parentByID)) }},
		{name: "delete where", draw: func(d *draw) gormCall { return remove(&gParent{}, d.condition()) }},
		{name: "delete where k", draw: func(d *draw) gormCall { return remove(&gChild{}, d.condition()) }},
		{name: "delete returning", draw: func(d *draw) gormCall {
			var all []gChild
			w := d.uncommented()
			return statement(code("db.Clauses(clause.Returning{}).Where(%s).Delete(&all)", w),
				func(db *gorm.DB) *gorm.DB {
					res := db.Clauses(clause.Returning{}).Where(w.text, w.args...).Delete(&all)
					sorted(all)
					return res
				}, &all)
		}},
		{name: "delete c", draw: func(d *draw) gormCall { return remove(d.pair()) }},
		{name: "delete s", draw: func(d *draw) gormCall { return remove(d.softByID()) }},
		{name: "delete where s", draw: func(d *draw) gormCall { return remove(&gSoft{}, d.condition()) }},
		{name: "delete by a flag", draw: func(d *draw) gormCall { return remove(&gFlag{ID: d.id()}) }},
		{name: "delete unscoped", draw: func(d *draw) gormCall {
			m := &gSoft{ID: d.id()}
			return statement(code("db.Unscoped().Delete(%s)", m), func(db *gorm.DB) *gorm.DB {
				return db.Unscoped().Delete(m)
			}, m)
		}},
	}
}

func gormAssociations() []kind[*gorm.DB] {
	association := func(method, name string, make func(*draw) []any) func(*draw) gormCall {
		return func(d *draw) gormCall {
			p, values := &gParent{ID: pick(d, 1, 1, d.id())}, make(d)
			return batch(d, failing(code("db.Model(%s).Association(%s)."+method+"(%s)", p, name, raw(literals(values))),
				func(db *gorm.DB) error {
					a := db.Model(p).Association(name)
					switch method {
					case "Append":
						return a.Append(values...)
					case "Replace":
						return a.Replace(values...)
					default:
						return a.Delete(values...)
					}
				}, append(values, p)...))
		}
	}
	children := func(d *draw) (all []any) {
		for range 1 + d.IntN(2) {
			all = append(all, d.child())
		}
		return all
	}
	tag := func(d *draw) []any { return []any{d.tag()} }
	part := func(d *draw) []any { return []any{d.part()} }
	return []kind[*gorm.DB]{
		{name: "association append", draw: association("Append", "Children", children)},
		{name: "association replace", draw: association("Replace", "Children", children)},
		{name: "association delete", draw: association("Delete", "Children", children)},
		{name: "association many2many", draw: association("Append", "Tags", tag)},
		{name: "association many2many replace", draw: association("Replace", "Tags", tag)},
		{name: "association has one", draw: association("Append", "Part", part)},
		{name: "save with full associations", draw: func(d *draw) gormCall {
			p := d.family()
			p.ID = d.id()
			return batch(d, statement(code("db.Session(&gorm.Session{FullSaveAssociations: true}).Save(%s)", p),
				func(db *gorm.DB) *gorm.DB {
					return db.Session(&gorm.Session{FullSaveAssociations: true}).Save(p)
				}, p))
		}},
	}
}

func gormGenerics() []kind[*gorm.DB] {
	type handle = gorm.Interface[gParent]
	of := func(db *gorm.DB, opts ...clause.Expression) (context.Context, handle) {
		return db.Statement.Context, gorm.G[gParent](db, opts...)
	}
	rows := func(text string, run func(db *gorm.DB) (int, error), models ...any) gormCall {
		return gormCall{code: text, models: models, run: func(db *gorm.DB) (int64, error) {
			n, err := run(db)
			return int64(n), err
		}}
	}
	return []kind[*gorm.DB]{
		{name: "G create", draw: func(d *draw) gormCall {
			p := d.parent()
			return failing(code("gorm.G[gParent](db).Create(ctx, %s)", p), func(db *gorm.DB) error {
				ctx, g := of(db)
				return g.Create(ctx, p)
			}, p)
		}},
		{name: "G upsert", draw: func(d *draw) gormCall {
			text, conflict := d.conflict("parents", "id")
			p := pick(d, d.parent, d.parentByID)()
			return failing(code("gorm.G[gParent](db, %s).Create(ctx, %s)", raw(text), p), func(db *gorm.DB) error {
				ctx, g := of(db, conflict)
				return g.Create(ctx, p)
			}, p)
		}},
		{name: "G batches", draw: func(d *draw) gormCall {
			var all []gParent
			for range 1 + d.IntN(3) {
				all = append(all, *d.parent())
			}
			c := failing(code("gorm.G[gParent](db).CreateInBatches(ctx, &%s, 2)", all), func(db *gorm.DB) error {
				ctx, g := of(db)
				return g.CreateInBatches(ctx, &all, 2)
			}, &all)
			c.nested = true
			return c
		}},
		{name: "G update", draw: func(d *draw) gormCall {
			w, q := d.condition(), d.qty()
			return rows(code(`gorm.G[gParent](db).Where(%s).Update(ctx, "qty", %s)`, w, q),
				func(db *gorm.DB) (int, error) {
					ctx, g := of(db)
					return g.Where(w.text, w.args...).Update(ctx, "qty", q)
				})
		}},
		{name: "G updates", draw: func(d *draw) gormCall {
			w, v := d.condition(), gParent{Qty: d.qty(), Tenant: 1}
			return rows(code("gorm.G[gParent](db).Where(%s).Updates(ctx, %s)", w, v), func(db *gorm.DB) (int, error) {
				ctx, g := of(db)
				return g.Where(w.text, w.args...).Updates(ctx, v)
			})
		}},
		{name: "G delete", draw: func(d *draw) gormCall {
			w := d.condition()
			return rows(code("gorm.G[gParent](db).Where(%s).Delete(ctx)", w), func(db *gorm.DB) (int, error) {
				ctx, g := of(db)
				return g.Where(w.text, w.args...).Delete(ctx)
			})
		}},
		{name: "G set", draw: func(d *draw) gormCall {
			w := d.condition()
			set := clause.Assignment{Column: clause.Column{Name: "qty"}, Value: pick[any](d, d.qty(), expr("qty + 1"))}
			return rows(code("gorm.G[gParent](db).Where(%s).Set(qty = %s).Update(ctx)", w, set.Value),
				func(db *gorm.DB) (int, error) {
					ctx, g := of(db)
					return g.Where(w.text, w.args...).Set(set).Update(ctx)
				})
		}},
	}
}

func gormRecorded() []kind[*gorm.DB] {
	// with records an event on a model, mostly.
	with := func(d *draw, c gormCall, all ...*gRecord) gormCall {
		for _, m := range all {
			if !d.one(4) {
				record(d, &c, m)
			}
		}
		return c
	}
	return []kind[*gorm.DB]{
		{name: "r create", draw: func(d *draw) gormCall {
			m := d.record()
			m.ID = pick(d, 0, m.ID)
			return with(d, create(m), m)
		}},
		{name: "r create, a batch", draw: func(d *draw) gormCall {
			all := several(d, d.record)
			if !d.one(3) {
				for _, m := range all {
					m.ID = 0
				}
			}
			return with(d, create(all), all...)
		}},
		{name: "r upsert", draw: func(d *draw) gormCall {
			m := d.record()
			text, conflict := d.conflict("records", "id")
			return with(d, statement(code("db.Clauses(%s).Create(%s)", raw(text), m), func(db *gorm.DB) *gorm.DB {
				return db.Clauses(conflict).Create(m)
			}, m), m)
		}},
		{name: "r do nothing, a batch", draw: func(d *draw) gormCall {
			all := several(d, d.record)
			if d.one(3) {
				for _, m := range all {
					m.ID = 0
				}
			}
			c := statement(code("db.Clauses(clause.OnConflict{DoNothing: true}).Create(%s)", all),
				func(db *gorm.DB) *gorm.DB {
					return db.Clauses(clause.OnConflict{DoNothing: true}).Create(all)
				}, all)
			return with(d, batch(d, c), all...)
		}},
		{name: "r key change", draw: func(d *draw) gormCall {
			m, id := d.record(), d.id()
			c := statement(code(`db.Model(%s).Update("id", %s)`, m, id), func(db *gorm.DB) *gorm.DB {
				return db.Model(m).Update("id", id)
			}, m)
			record(d, &c, m).key = func() string { return fmt.Sprint(id) }
			return c
		}},
		{name: "r save", draw: func(d *draw) gormCall {
			m := d.record()
			return with(d, save(m), m)
		}},
		{name: "r update", draw: func(d *draw) gormCall {
			m := d.record()
			return with(d, update(m, map[string]any{"qty": d.qty()}), m)
		}},
		{name: "r update with where", draw: func(d *draw) gormCall {
			m, w := d.record(), d.condition()
			c := update(m, plusOne(), w)
			c.refusable = strings.Contains(w.text, "--") // which hides the condition of the key
			return with(d, c, m)
		}},
		{name: "r update with or", draw: func(d *draw) gormCall {
			m, w, or, q := d.record(), d.condition(), d.condition(), d.qty()
			c := statement(code(`db.Model(%s).Where(%s).Or(%s).Update("qty", %s)`, m, w, or, q),
				func(db *gorm.DB) *gorm.DB {
					return db.Model(m).Where(w.text, w.args...).Or(or.text, or.args...).Update("qty", q)
				}, m)
			c.refusable = true // if the model's row is not among those that changed
			return with(d, c, m)
		}},
		{name: "r where update", draw: func(d *draw) gormCall {
			m, w, q := &gRecord{}, d.condition(), d.qty()
			c := statement(code(`db.Model(%s).Where(%s).Update("qty", %s)`, m, w, q), func(db *gorm.DB) *gorm.DB {
				return db.Model(m).Where(w.text, w.args...).Update("qty", q)
			}, m)
			record(d, &c, m).key = nil
			c.refusable = true // if several rows change
			return c
		}},
		{name: "r slice update", draw: func(d *draw) gormCall {
			all := several(d, d.record)
			return with(d, update(all, map[string]any{"qty": d.qty()}), all...)
		}},
		{name: "r updates into a destination", draw: func(d *draw) gormCall {
			m := d.record()
			c := statement(code("db.Updates(%s)", m), func(db *gorm.DB) *gorm.DB { return db.Updates(m) }, m)
			return with(d, c, m)
		}},
		{name: "r delete", draw: func(d *draw) gormCall {
			m := d.record()
			return with(d, remove(m), m)
		}},
		{name: "r delete several", draw: func(d *draw) gormCall {
			all := several(d, d.record)
			return with(d, remove(all), all...)
		}},
	}
}
