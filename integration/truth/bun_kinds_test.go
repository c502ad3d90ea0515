package truth_test

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/feature"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

type (
	bunCall = call[bunHandle]

	insertQuery = bun.InsertQuery
	updateQuery = bun.UpdateQuery
	deleteQuery = bun.DeleteQuery
)

// executes is the common method of Bun's queries.
type executes interface {
	Exec(ctx context.Context, dest ...any) (sql.Result, error)
}

// bunStatement makes a call of a query, which made builds.
func bunStatement[Q executes](text string, made func(db bunHandle) Q, models ...any) bunCall {
	return bunCall{code: text, models: models, run: func(db bunHandle) (int64, error) {
		res, err := made(db).Exec(db.ctx)
		if err != nil {
			return 0, err
		}
		return res.RowsAffected()
	}}
}

func (d *draw) bParent() *bParent { return &bParent{Name: d.name(), Qty: d.qty(), Tenant: 1} }

// bParentByID has a key: of a row or not.
func (d *draw) bParentByID() *bParent {
	p := d.bParent()
	p.ID = d.id()
	return p
}

func (d *draw) bChild() *bChild {
	return &bChild{ID: d.key(), Name: pick(d, "a", "it's \\ (", "c"), Qty: d.qty(), Tenant: 1}
}

func (d *draw) bPair() *bPair {
	return &bPair{Shop: d.shop(), Code: d.code(), Name: pick(d, "x", "y"), Qty: d.qty(), Tenant: 1}
}

func (d *draw) bSoft() *bSoft { return &bSoft{Name: pick(d, "a", "b", "c"), Qty: d.qty(), Tenant: 1} }

func (d *draw) bSoftByID() *bSoft {
	s := d.bSoft()
	s.ID = d.id()
	return s
}

func (d *draw) bRecord() *bRecord {
	return &bRecord{ID: d.id(), Name: pick(d, "a", "b", "c"), Qty: d.qty(), Tenant: 1}
}

// line is a condition on a line of its own, because Bun puts a parenthesis behind it.
func (d *draw) line() condition {
	c := d.condition()
	c.text += "\n"
	return c
}

// bunRecord records an event on a model.
func bunRecord(d *draw, c *bunCall, m *bRecord) *recording {
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

func bunInsert(model any) bunCall {
	return bunStatement(code("db.NewInsert().Model(%s)", model), func(db bunHandle) *insertQuery {
		return db.NewInsert().Model(model)
	}, model)
}

// bunUpsert adds to an insert what is done with a row that is there.
func bunUpsert(d *draw, model any, by string) bunCall {
	set := pick(d, "qty = ?", "qty = ? + 1", "qty = qty + 1", "")
	on, excluded, own := "CONFLICT ("+by+") DO UPDATE", "EXCLUDED.qty", "?TableAlias.qty + 1"
	if d.dialect == core.MySQL {
		on, excluded, own = "DUPLICATE KEY UPDATE", "VALUES(qty)", "qty + 1"
	}
	text := code("db.NewInsert().Model(%s)", model)
	if set == "" {
		return bunStatement(text+".Ignore()", func(db bunHandle) *insertQuery {
			return db.NewInsert().Model(model).Ignore()
		}, model)
	}
	value := map[string]string{"qty = ?": excluded, "qty = ? + 1": excluded + " + 1", "qty = qty + 1": own}[set]
	return bunStatement(text+fmt.Sprintf(".On(%q).Set(\"qty = %s\")", on, value), func(db bunHandle) *insertQuery {
		return db.NewInsert().Model(model).On(on).Set("qty = " + value)
	}, model)
}

// bunBatch says that MySQL and MariaDB may refuse it.
func bunBatch(d *draw, c bunCall) bunCall {
	if d.dialect == core.MySQL {
		c.refusable = true // batches on MariaDB and MySQL
	}
	return c
}

// bunUpdate makes an update of a model; more adds to it.
func bunUpdate(model any, text string, more func(q *updateQuery) *updateQuery) bunCall {
	return bunStatement(code("db.NewUpdate().Model(%s)", model)+text, func(db bunHandle) *updateQuery {
		return more(db.NewUpdate().Model(model))
	}, model)
}

// bunDelete is bunUpdate for deletes.
func bunDelete(model any, text string, more func(q *deleteQuery) *deleteQuery) bunCall {
	return bunStatement(code("db.NewDelete().Model(%s)", model)+text, func(db bunHandle) *deleteQuery {
		return more(db.NewDelete().Model(model))
	}, model)
}

func bunKinds() []kind[bunHandle] {
	return slices.Concat(bunInserts(), bunUpdates(), bunDeletes(), bunRecorded())
}

// MySQL has no RETURNING, and nothing that names the rows of a SELECT which were inserted.
func bunInserts() []kind[bunHandle] {
	return []kind[bunHandle]{
		{name: "insert p", draw: func(d *draw) bunCall { return bunInsert(d.bParent()) }},
		{name: "insert p by key", draw: func(d *draw) bunCall { return bunInsert(d.bParentByID()) }},
		{name: "insert p, a batch", draw: func(d *draw) bunCall {
			all := several(d, d.bParent)
			return bunInsert(&all)
		}},
		{name: "insert p, a batch without returning", draw: func(d *draw) bunCall {
			all := several(d, d.bParent)
			return bunStatement(code(`db.NewInsert().Model(&%s).Returning("")`, all), func(db bunHandle) *insertQuery {
				return db.NewInsert().Model(&all).Returning("")
			}, &all)
		}},
		{name: "insert s", draw: func(d *draw) bunCall { return bunInsert(d.bSoft()) }},
		{name: "insert k", draw: func(d *draw) bunCall {
			all := several(d, d.bChild)
			return bunInsert(&all)
		}},
		{name: "insert c", draw: func(d *draw) bunCall { return bunInsert(d.bPair()) }},
		{name: "insert with a value", draw: func(d *draw) bunCall {
			p, q := d.bParent(), d.qty()
			return bunStatement(code(`db.NewInsert().Model(%s).Value("qty", "? + 1", %s)`, p, q),
				func(db bunHandle) *insertQuery { return db.NewInsert().Model(p).Value("qty", "? + 1", q) }, p)
		}},
		{name: "insert from a select", idle: "mysql", draw: func(d *draw) bunCall {
			m, w := &bTag{}, d.line()
			c := bunStatement(code(`db.NewInsert().Model(&bTag{}).Column("name", "qty").TableExpr(tags where %s)`, w),
				func(db bunHandle) *insertQuery {
					return db.NewInsert().Model(m).Column("name", "qty").TableExpr("(?) AS x",
						db.NewSelect().Model(&bParent{}).Column("name", "qty").Where(w.text, w.args...).Order("id"))
				}, m)
			if d.dialect == core.MySQL {
				c.refusable = true // INSERT of a SELECT on MySQL
			}
			return c
		}},
		{name: "upsert p", draw: func(d *draw) bunCall {
			return bunUpsert(d, pick(d, d.bParent, d.bParentByID)(), "id")
		}},
		{name: "upsert p by name", draw: func(d *draw) bunCall {
			return bunUpsert(d, pick(d, d.bParent, d.bParentByID)(), "name")
		}},
		{name: "upsert p, a batch", draw: func(d *draw) bunCall {
			all := several(d, d.bParent)
			return bunBatch(d, bunUpsert(d, &all, "name"))
		}},
		{name: "upsert k", draw: func(d *draw) bunCall { return bunUpsert(d, d.bChild(), "id") }},
		{name: "upsert k, a batch", draw: func(d *draw) bunCall {
			all := several(d, d.bChild)
			return bunBatch(d, bunUpsert(d, &all, "id"))
		}},
		{name: "upsert c", draw: func(d *draw) bunCall { return bunUpsert(d, d.bPair(), "shop, code") }},
		{name: "publish", draw: func(d *draw) bunCall {
			typ := fmt.Sprintf("published.%d", d.Uint64())
			return bunCall{
				code: code("ob.Publish(ctx, tx, core.Event{Type: %s})", typ), published: typ,
				publish: func(db bunHandle) error { return db.ob.Publish(db.ctx, db.IDB, fixture.Event(typ)) },
			}
		}},
	}
}

func bunUpdates() []kind[bunHandle] {
	byKey := func(q *updateQuery) *updateQuery { return q.WherePK() }
	return []kind[bunHandle]{
		{name: "update p by key", draw: func(d *draw) bunCall {
			return bunUpdate(d.bParentByID(), ".WherePK()", byKey)
		}},
		{name: "update k by key", draw: func(d *draw) bunCall { return bunUpdate(d.bChild(), ".WherePK()", byKey) }},
		{name: "update, omit zero", draw: func(d *draw) bunCall {
			m := &bParent{ID: d.id(), Qty: 1 + d.qty()}
			return bunUpdate(m, ".OmitZero().WherePK()", func(q *updateQuery) *updateQuery {
				return q.OmitZero().WherePK()
			})
		}},
		{name: "update a column", draw: func(d *draw) bunCall {
			return bunUpdate(d.bParentByID(), `.Column("qty").WherePK()`, func(q *updateQuery) *updateQuery {
				return q.Column("qty").WherePK()
			})
		}},
		{name: "update by an expression", draw: func(d *draw) bunCall {
			return bunUpdate(d.bParentByID(), `.Set("qty = qty + 1").WherePK()`, func(q *updateQuery) *updateQuery {
				return q.Set("qty = qty + 1").WherePK()
			})
		}},
		{name: "update with a condition", draw: func(d *draw) bunCall {
			w := d.line()
			return bunUpdate(d.bParentByID(), code(`.Column("qty").WherePK().Where(%s)`, w),
				func(q *updateQuery) *updateQuery { return q.Column("qty").WherePK().Where(w.text, w.args...) })
		}},
		{name: "update with or", draw: func(d *draw) bunCall {
			w := d.line()
			return bunUpdate(d.bChild(), code(`.Column("qty").WherePK().WhereOr(%s)`, w),
				func(q *updateQuery) *updateQuery { return q.Column("qty").WherePK().WhereOr(w.text, w.args...) })
		}},
		{name: "update where id", draw: func(d *draw) bunCall {
			id, qty := d.id(), d.qty()
			return bunUpdate(&bParent{}, code(`.Set("qty = ?", %s).Where("id = ?", %s)`, qty, id),
				func(q *updateQuery) *updateQuery { return q.Set("qty = ?", qty).Where("id = ?", id) })
		}},
		{name: "update a nil model", draw: func(d *draw) bunCall {
			w, qty := d.line(), d.qty()
			return bunUpdate((*bChild)(nil), code(`.Set("qty = ?", %s).Where(%s)`, qty, w),
				func(q *updateQuery) *updateQuery { return q.Set("qty = ?", qty).Where(w.text, w.args...) })
		}},
		{name: "update into a slice", draw: func(d *draw) bunCall {
			var all []bChild
			w, qty, returning := d.line(), d.qty(), pick(d, "*", "id, name", "qty + 1 AS qty")
			c := bunUpdate(&all, code(`.Set("qty = ?", %s).Where(%s).Returning(%s)`, qty, w, returning),
				func(q *updateQuery) *updateQuery {
					return q.Set("qty = ?", qty).Where(w.text, w.args...).Returning(returning)
				})
			run := c.run
			c.run = func(db bunHandle) (int64, error) {
				n, err := run(db)
				sorted(all)
				return n, err
			}
			return c
		}},
		{name: "update into the model", draw: func(d *draw) bunCall {
			return bunUpdate(d.bParentByID(), `.Set("qty = qty + 1").WherePK().Returning("*")`,
				func(q *updateQuery) *updateQuery { return q.Set("qty = qty + 1").WherePK().Returning("*") })
		}},
		{name: "update without returning, into a destination", draw: func(d *draw) bunCall {
			m := d.bParentByID()
			return bunCall{
				code: code(`db.NewUpdate().Model(%s).Set("qty = qty + 1").WherePK().Exec(ctx, &ids)`, m),
				run: func(db bunHandle) (int64, error) {
					var ids []int64
					_, err := db.NewUpdate().Model(m).Set("qty = qty + 1").WherePK().Exec(db.ctx, &ids)
					return int64(len(ids)), err
				},
			}
		}},
		{name: "update a slice", draw: func(d *draw) bunCall {
			all, w := several(d, d.bParentByID), d.line()
			return bunUpdate(&all, code(`.Set("qty = qty + 1").WherePK().Where(%s)`, w),
				func(q *updateQuery) *updateQuery {
					return q.Set("qty = qty + 1").WherePK().Where(w.text, w.args...)
				})
		}},
		{name: "update in bulk", draw: func(d *draw) bunCall {
			all := several(d, d.bParentByID)
			for i, m := range all { // of two models of one row, the database takes any
				m.ID = 1 + (all[0].ID+int64(i))%5
			}
			return bunStatement(code(`db.NewUpdate().Model(&%s).Column("qty").Bulk()`, all),
				func(db bunHandle) *updateQuery {
					if !db.Dialect().Features().Has(feature.WithValues) { // MariaDB
						return db.NewUpdate().Model(all[0]).Column("qty").WherePK()
					}
					return db.NewUpdate().Model(&all).Column("qty").Bulk()
				}, &all)
		}},
		{name: "update c", draw: func(d *draw) bunCall { return bunUpdate(d.bPair(), ".WherePK()", byKey) }},
		{name: "update c by a part of the key", draw: func(d *draw) bunCall {
			return bunUpdate(d.bPair(), `.Column("qty").WherePK("shop")`, func(q *updateQuery) *updateQuery {
				return q.Column("qty").WherePK("shop")
			})
		}},
		{name: "key change of k", draw: func(d *draw) bunCall {
			key := d.key()
			return bunUpdate(d.bChild(), code(`.Set("id = ?", %s).WherePK()`, key),
				func(q *updateQuery) *updateQuery { return q.Set("id = ?", key).WherePK() })
		}},
		{name: "key change of c", draw: func(d *draw) bunCall {
			key := d.code()
			return bunUpdate(d.bPair(), code(`.Set("code = ?", %s).WherePK()`, key),
				func(q *updateQuery) *updateQuery { return q.Set("code = ?", key).WherePK() })
		}},
		{name: "update with a limit", draw: func(d *draw) bunCall {
			w, qty := d.line(), d.qty()
			return bunStatement(code(`db.NewUpdate().Model(&bChild{}).Set("qty = ?", %s).Where(%s).Limit(2)`, qty, w),
				func(db bunHandle) *updateQuery {
					q := db.NewUpdate().Model((*bChild)(nil)).Set("qty = ?", qty).Where(w.text, w.args...)
					if d.dialect == core.MySQL {
						q = q.Order("id").Limit(2)
					}
					return q
				})
		}},
		{name: "update from", idle: "mariadb mysql", draw: func(d *draw) bunCall {
			c := bunUpdate((*bParent)(nil), `.Set("qty = t.qty").TableExpr("tags AS t").Where("t.id = p.id")`,
				func(q *updateQuery) *updateQuery {
					if d.dialect == core.MySQL {
						return q.Set("p.qty = t.qty").TableExpr("tags AS t").Where("t.id = p.id")
					}
					return q.Set("qty = t.qty").TableExpr("tags AS t").Where("t.id = p.id")
				})
			if d.dialect == core.MySQL {
				c.refusable = true // a joined table
			}
			return c
		}},
		{name: "update by a subquery", draw: func(d *draw) bunCall {
			w := d.line()
			return bunStatement(code(
				`db.NewUpdate().Model(&bChild{}).Set("qty = qty + 1").Where("qty IN", tags where %s)`, w),
				func(db bunHandle) *updateQuery {
					return db.NewUpdate().Model((*bChild)(nil)).Set("qty = qty + 1").Where("qty IN (?)",
						db.NewSelect().Model((*bTag)(nil)).Column("qty").Where(w.text, w.args...))
				})
		}},
		{name: "update s", draw: func(d *draw) bunCall {
			return bunUpdate(d.bSoftByID(), `.Column("qty").WherePK()`, func(q *updateQuery) *updateQuery {
				return q.Column("qty").WherePK()
			})
		}},
		{name: "update deleted", draw: func(d *draw) bunCall {
			w, qty := d.line(), d.qty()
			return bunUpdate((*bSoft)(nil), code(`.Set("qty = ?", %s).Where(%s).WhereAllWithDeleted()`, qty, w),
				func(q *updateQuery) *updateQuery {
					return q.Set("qty = ?", qty).Where(w.text, w.args...).WhereAllWithDeleted()
				})
		}},
		{name: "restore", draw: func(d *draw) bunCall {
			return bunUpdate(d.bSoftByID(), `.Set("deleted_at = NULL").WherePK().WhereDeleted()`,
				func(q *updateQuery) *updateQuery {
					return q.Set("deleted_at = NULL").WherePK().WhereDeleted()
				})
		}},
	}
}

func bunDeletes() []kind[bunHandle] {
	byKey := func(q *deleteQuery) *deleteQuery { return q.WherePK() }
	return []kind[bunHandle]{
		{name: "delete p by key", draw: func(d *draw) bunCall {
			return bunDelete(d.bParentByID(), ".WherePK()", byKey)
		}},
		{name: "delete k, a slice", draw: func(d *draw) bunCall {
			all := several(d, d.bChild)
			return bunDelete(&all, ".WherePK()", byKey)
		}},
		{name: "delete where", draw: func(d *draw) bunCall {
			w := d.line()
			return bunDelete((*bChild)(nil), code(".Where(%s)", w), func(q *deleteQuery) *deleteQuery {
				return q.Where(w.text, w.args...)
			})
		}},
		{name: "delete with or", draw: func(d *draw) bunCall {
			w := d.line()
			return bunDelete(d.bParentByID(), code(".WherePK().WhereOr(%s)", w), func(q *deleteQuery) *deleteQuery {
				return q.WherePK().WhereOr(w.text, w.args...)
			})
		}},
		{name: "delete into a slice", idle: "mysql", draw: func(d *draw) bunCall {
			var all []bTag
			w, returning := d.line(), pick(d, "*", "id", "qty")
			c := bunDelete(&all, code(".Where(%s).Returning(%s)", w, returning), func(q *deleteQuery) *deleteQuery {
				return q.Where(w.text, w.args...).Returning(returning)
			})
			run := c.run
			c.run = func(db bunHandle) (int64, error) {
				n, err := run(db)
				sorted(all)
				return n, err
			}
			return c
		}},
		{name: "delete into what cannot be read", idle: "mysql", draw: func(d *draw) bunCall {
			id := d.id()
			c := bunDelete((*bTag)(nil), code(`.Where("id = ?", %s).Returning("name")`, id),
				func(q *deleteQuery) *deleteQuery { return q.Where("id = ?", id).Returning("name") })
			return c
		}},
		{name: "delete c", draw: func(d *draw) bunCall { return bunDelete(d.bPair(), ".WherePK()", byKey) }},
		{name: "soft delete", draw: func(d *draw) bunCall {
			c := bunDelete(d.bSoftByID(), ".WherePK()", byKey)
			c.models = nil // Bun puts the time of its own clock into the model
			return c
		}},
		{name: "soft delete where", draw: func(d *draw) bunCall {
			w := d.line()
			return bunDelete((*bSoft)(nil), code(".Where(%s)", w), func(q *deleteQuery) *deleteQuery {
				return q.Where(w.text, w.args...)
			})
		}},
		{name: "force delete", draw: func(d *draw) bunCall {
			return bunDelete(d.bSoftByID(), ".WherePK().ForceDelete()", func(q *deleteQuery) *deleteQuery {
				return q.WherePK().ForceDelete()
			})
		}},
	}
}

func bunRecorded() []kind[bunHandle] {
	// with records an event on a model, mostly.
	with := func(d *draw, c bunCall, all ...*bRecord) bunCall {
		for _, m := range all {
			if !d.one(4) {
				bunRecord(d, &c, m)
			}
		}
		return c
	}
	unkeyed := func(all []*bRecord) {
		for _, m := range all {
			m.ID = 0
		}
	}
	return []kind[bunHandle]{
		{name: "r insert", draw: func(d *draw) bunCall {
			m := d.bRecord()
			m.ID = pick(d, 0, m.ID)
			return with(d, bunInsert(m), m)
		}},
		{name: "r insert, a batch", draw: func(d *draw) bunCall {
			all := several(d, d.bRecord)
			if !d.one(3) {
				unkeyed(all)
			}
			return with(d, bunInsert(&all), all...)
		}},
		{name: "r upsert", draw: func(d *draw) bunCall {
			m := d.bRecord()
			return with(d, bunUpsert(d, m, "id"), m)
		}},
		{name: "r ignore, a batch", draw: func(d *draw) bunCall {
			all := several(d, d.bRecord)
			own := slices.Clone(all)
			c := bunStatement(code("db.NewInsert().Model(&%s).Ignore()", all), func(db bunHandle) *insertQuery {
				return db.NewInsert().Model(&all).Ignore()
			}, &all)
			return with(d, bunBatch(d, c), own...)
		}},
		{name: "r update", draw: func(d *draw) bunCall {
			m := d.bRecord()
			return with(d, bunUpdate(m, ".WherePK()", func(q *updateQuery) *updateQuery { return q.WherePK() }), m)
		}},
		{name: "r update with where", draw: func(d *draw) bunCall {
			m, w := d.bRecord(), d.line()
			return with(d, bunUpdate(m, code(`.Set("qty = qty + 1").WherePK().Where(%s)`, w),
				func(q *updateQuery) *updateQuery {
					return q.Set("qty = qty + 1").WherePK().Where(w.text, w.args...)
				}), m)
		}},
		{name: "r update with or", draw: func(d *draw) bunCall {
			m, w := d.bRecord(), d.line()
			c := bunUpdate(m, code(`.Column("qty").WherePK().WhereOr(%s)`, w), func(q *updateQuery) *updateQuery {
				return q.Column("qty").WherePK().WhereOr(w.text, w.args...)
			})
			c.refusable = true // recorded events of a model whose row was not among those that changed
			return with(d, c, m)
		}},
		{name: "r update, a slice", draw: func(d *draw) bunCall {
			all := several(d, d.bRecord)
			return with(d, bunUpdate(&all, `.Set("qty = qty + 1").WherePK()`, func(q *updateQuery) *updateQuery {
				return q.Set("qty = qty + 1").WherePK()
			}), all...)
		}},
		{name: "r update, a slice returning", draw: func(d *draw) bunCall {
			own := several(d, d.bRecord)
			all := slices.Clone(own)
			c := bunUpdate(&all, `.Set("qty = qty + 1").WherePK().Returning("*")`,
				func(q *updateQuery) *updateQuery { return q.Set("qty = qty + 1").WherePK().Returning("*") })
			c.models = nil // Bun reads rows over the models in the order of the database
			return with(d, c, own...)
		}},
		{name: "r delete", draw: func(d *draw) bunCall {
			m := d.bRecord()
			return with(d, bunDelete(m, ".WherePK()", func(q *deleteQuery) *deleteQuery { return q.WherePK() }), m)
		}},
		{name: "r delete, a slice", draw: func(d *draw) bunCall {
			all := several(d, d.bRecord)
			return with(d, bunDelete(&all, ".WherePK()", func(q *deleteQuery) *deleteQuery {
				return q.WherePK()
			}), all...)
		}},
	}
}
