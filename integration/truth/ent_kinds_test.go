package truth_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient/child"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient/order"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient/soft"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient/tag"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

type entCall = call[*entHandle]

// gives makes a call of a function that returns what Ent returns: an entity, several, or a number.
func gives[T any](text string, run func(h *entHandle) (T, error)) entCall {
	given := new(T)
	return entCall{code: text, models: []any{given}, run: func(h *entHandle) (int64, error) {
		var err error
		*given, err = run(h)
		err = inOrder(err)
		if n, ok := any(*given).(int); ok {
			return int64(n), err
		}
		return 0, err
	}}
}

// inOrder replaces an error in whose text Ent lists ids in the order of a map.
func inOrder(err error) error {
	if err != nil && strings.Contains(err.Error(), "is already connected to a different") {
		return errors.New("is already connected")
	}
	return err
}

// does makes a call of a function that returns an error alone.
func does(text string, run func(h *entHandle) error) entCall {
	return entCall{code: text, run: func(h *entHandle) (int64, error) { return 0, run(h) }}
}

// entValues are the values of a new row.
type entValues struct {
	key, name string
	qty       int64
}

func (d *draw) entParent() entValues { return entValues{name: d.name(), qty: d.qty()} }
func (d *draw) entChild() entValues {
	return entValues{key: d.key(), name: pick(d, "a", "b", "c"), qty: d.qty()}
}

func (v entValues) String() string { return fmt.Sprintf("%s %s %d", v.key, v.name, v.qty) }

func (h *entHandle) newParent(v entValues) *entclient.OrderCreate {
	return h.Order.Create().SetName(v.name).SetQty(v.qty)
}

func (h *entHandle) newChild(v entValues) *entclient.ChildCreate {
	return h.Child.Create().SetID(v.key).SetName(v.name).SetQty(v.qty)
}

func many[T any](d *draw, one func() T) []T {
	all := make([]T, 1+d.IntN(3))
	for i := range all {
		all[i] = one()
	}
	return all
}

func mapped[T, V any](all []T, fn func(T) V) (to []V) {
	for _, one := range all {
		to = append(to, fn(one))
	}
	return to
}

// entConflict is an upsert of Ent.
func (d *draw) entConflict(table string, columns ...string) (text string, options []entsql.ConflictOption) {
	target := entsql.ConflictColumns(columns...)
	set := func(fn func(*entsql.UpdateSet)) []entsql.ConflictOption {
		return []entsql.ConflictOption{target, entsql.ResolveWith(fn)}
	}
	switch d.IntN(6) {
	case 0:
		return "DoNothing", []entsql.ConflictOption{target, entsql.DoNothing()}
	case 1:
		return "Ignore", []entsql.ConflictOption{target, entsql.ResolveWithIgnore()}
	case 2:
		return "UpdateQty", set(func(u *entsql.UpdateSet) { u.SetExcluded("qty") })
	case 3:
		return "AddQty", set(func(u *entsql.UpdateSet) { u.Add("qty", 1) })
	case 4:
		if d.dialect != core.MySQL { // which has no condition
			return "UpdateQty, where qty > 1", append(set(func(u *entsql.UpdateSet) { u.SetExcluded("qty") }),
				entsql.UpdateWhere(entsql.P(func(b *entsql.Builder) { b.WriteString(table + ".qty > 1") })))
		}
		return "UpdateQty", set(func(u *entsql.UpdateSet) { u.SetExcluded("qty") })
	default:
		return "UpdateNewValues", []entsql.ConflictOption{target, entsql.ResolveWithNewValues()}
	}
}

// entPredicate is a condition on any table.
func (d *draw) entPredicate() (text string, of func(*entsql.Selector)) {
	qty, name := d.qty(), pick(d, "a", "b", "n1", "n2", "x")
	switch d.IntN(5) {
	case 0:
		return fmt.Sprintf("qty > %d", qty), entsql.FieldGT("qty", qty)
	case 1:
		return fmt.Sprintf("qty = %d", qty), entsql.FieldEQ("qty", qty)
	case 2:
		return "name = " + name, entsql.FieldEQ("name", name)
	case 3:
		return fmt.Sprintf("qty = %d OR name = %s", qty, name),
			func(s *entsql.Selector) { s.Where(entsql.ExprP(fmt.Sprintf("qty = %d OR name = '%s'", qty, name))) }
	default:
		return "1 = 1", func(s *entsql.Selector) { s.Where(entsql.ExprP("1 = 1")) }
	}
}

func entKinds() []kind[*entHandle] {
	var all []kind[*entHandle]
	add := func(name string, draw func(d *draw) entCall) {
		k := kind[*entHandle]{name: name, draw: draw}
		if name == "update nothing" {
			k.idle = "all"
		}
		all = append(all, k)
	}
	entCreates(add)
	entUpserts(add)
	entUpdates(add)
	entEdges(add)
	entDeletes(add)
	add("publish", func(d *draw) entCall {
		typ := fmt.Sprintf("said.%d", d.Uint64())
		return entCall{code: "ob.Publish(ctx, tx, event)", published: typ, publish: func(h *entHandle) error {
			return h.ob.Publish(context.WithoutCancel(h.ctx), h.tx, fixture.Event(typ))
		}}
	})
	return all
}

type adding = func(name string, draw func(d *draw) entCall)

func entCreates(add adding) {
	add("create p", func(d *draw) entCall {
		v := d.entParent()
		return gives(fmt.Sprintf("Order.Create(%s)", v), func(h *entHandle) (*entclient.Order, error) {
			return h.newParent(v).Save(h.ctx)
		})
	})
	add("create k", func(d *draw) entCall {
		v := d.entChild()
		return gives(fmt.Sprintf("Child.Create(%s)", v), func(h *entHandle) (*entclient.Child, error) {
			return h.newChild(v).Save(h.ctx)
		})
	})
	add("create p with edges", func(d *draw) entCall {
		v, keys, tags := d.entParent(), many(d, d.key)[1:], many(d, d.id)[1:]
		return gives(fmt.Sprintf("Order.Create(%s).AddChildIDs(%v).AddTagIDs(%v)", v, keys, tags),
			func(h *entHandle) (*entclient.Order, error) {
				return h.newParent(v).AddChildIDs(keys...).AddTagIDs(tags...).Save(h.ctx)
			})
	})
	add("create k of a parent", func(d *draw) entCall {
		v, of := d.entChild(), d.id()
		return gives(fmt.Sprintf("Child.Create(%s).SetParentID(%d)", v, of),
			func(h *entHandle) (*entclient.Child, error) {
				return h.newChild(v).SetParentID(of).Save(h.ctx)
			})
	})
	add("create p, bulk", func(d *draw) entCall {
		v := many(d, d.entParent)
		return gives(fmt.Sprintf("Order.CreateBulk(%v)", v), func(h *entHandle) ([]*entclient.Order, error) {
			return h.Order.CreateBulk(mapped(v, h.newParent)...).Save(h.ctx)
		})
	})
	add("create k, bulk", func(d *draw) entCall {
		v := many(d, d.entChild)
		return gives(fmt.Sprintf("Child.CreateBulk(%v)", v), func(h *entHandle) ([]*entclient.Child, error) {
			return h.Child.CreateBulk(mapped(v, h.newChild)...).Save(h.ctx)
		})
	})
	add("create p, bulk with edges", func(d *draw) entCall {
		v, tag := many(d, d.entParent), d.id()
		return gives(fmt.Sprintf("Order.CreateBulk(%v, AddTagIDs(%d))", v, tag),
			func(h *entHandle) ([]*entclient.Order, error) {
				return h.Order.CreateBulk(mapped(v, func(v entValues) *entclient.OrderCreate {
					return h.newParent(v).AddTagIDs(tag)
				})...).Save(h.ctx)
			})
	})
	add("create s", func(d *draw) entCall {
		name, qty := pick(d, "a", "b"), d.qty()
		return gives(fmt.Sprintf("Soft.Create(%s, %d)", name, qty), func(h *entHandle) (*entclient.Soft, error) {
			return h.Soft.Create().SetName(name).SetQty(qty).Save(h.ctx)
		})
	})
}

func entUpserts(add adding) {
	add("upsert p by name", func(d *draw) entCall {
		v := d.entParent()
		text, options := d.entConflict("parents", "name")
		return gives(fmt.Sprintf("Order.Create(%s).OnConflict(name).%s", v, text), func(h *entHandle) (int64, error) {
			return h.newParent(v).OnConflict(options...).ID(h.ctx)
		})
	})
	add("upsert k", func(d *draw) entCall {
		v := d.entChild()
		text, options := d.entConflict("children", "id")
		return does(fmt.Sprintf("Child.Create(%s).OnConflict(id).%s", v, text), func(h *entHandle) error {
			return h.newChild(v).OnConflict(options...).Exec(h.ctx)
		})
	})
	add("upsert p with an id, by name", func(d *draw) entCall {
		v, id := d.entParent(), d.id()
		text, options := d.entConflict("parents", "name")
		c := does(fmt.Sprintf("Order.Create(%d %s).OnConflict(name).%s", id, v, text), func(h *entHandle) error {
			return h.newParent(v).SetID(id).OnConflict(options...).Exec(h.ctx)
		})
		c.refusable = d.dialect == core.MySQL
		return c
	})
	add("skip without a target", func(d *draw) entCall {
		v := d.entParent()
		return does(fmt.Sprintf("Order.Create(%s).OnConflict().DoNothing()", v), func(h *entHandle) error {
			return h.newParent(v).OnConflict(entsql.DoNothing()).Exec(h.ctx)
		})
	})
	add("upsert p, bulk", func(d *draw) entCall {
		v := many(d, d.entParent)
		text, options := d.entConflict("parents", "name")
		c := does(fmt.Sprintf("Order.CreateBulk(%v).OnConflict(name).%s", v, text), func(h *entHandle) error {
			return h.Order.CreateBulk(mapped(v, h.newParent)...).OnConflict(options...).Exec(h.ctx)
		})
		c.refusable = d.dialect == core.MySQL
		return c
	})
	add("upsert k, bulk", func(d *draw) entCall {
		v := many(d, d.entChild)
		text, options := d.entConflict("children", "id")
		c := does(fmt.Sprintf("Child.CreateBulk(%v).OnConflict(id).%s", v, text), func(h *entHandle) error {
			return h.Child.CreateBulk(mapped(v, h.newChild)...).OnConflict(options...).Exec(h.ctx)
		})
		c.refusable = d.dialect == core.MySQL
		return c
	})
}

func entUpdates(add adding) {
	add("update one", func(d *draw) entCall {
		id, qty := d.id(), d.qty()
		return gives(fmt.Sprintf("Order.UpdateOneID(%d).SetQty(%d)", id, qty),
			func(h *entHandle) (*entclient.Order, error) { return h.Order.UpdateOneID(id).SetQty(qty).Save(h.ctx) })
	})
	add("update one, add", func(d *draw) entCall {
		id := d.key()
		return gives(fmt.Sprintf("Child.UpdateOneID(%s).AddQty(1)", id),
			func(h *entHandle) (*entclient.Child, error) { return h.Child.UpdateOneID(id).AddQty(1).Save(h.ctx) })
	})
	add("update one, where", func(d *draw) entCall {
		id, name := d.id(), d.name()
		text, p := d.entPredicate()
		return gives(fmt.Sprintf("Order.UpdateOneID(%d).Where(%s).SetName(%s)", id, text, name),
			func(h *entHandle) (*entclient.Order, error) {
				return h.Order.UpdateOneID(id).Where(p).SetName(name).Save(h.ctx)
			})
	})
	add("update one, select", func(d *draw) entCall {
		id, qty := d.id(), d.qty()
		return gives(fmt.Sprintf("Order.UpdateOneID(%d).SetQty(%d).Select(qty)", id, qty),
			func(h *entHandle) (*entclient.Order, error) {
				return h.Order.UpdateOneID(id).SetQty(qty).Select(order.FieldQty).Save(h.ctx)
			})
	})
	add("update an entity", func(d *draw) entCall {
		id, qty := d.id(), d.qty()
		return gives(fmt.Sprintf("Order.Get(%d).Update().SetQty(%d)", id, qty),
			func(h *entHandle) (*entclient.Order, error) {
				p, err := h.Order.Get(h.ctx, id)
				if err != nil {
					return nil, err
				}
				return p.Update().SetQty(qty).AddTenant(0).Save(h.ctx)
			})
	})
	add("update where", func(d *draw) entCall {
		qty := d.qty()
		text, p := d.entPredicate()
		return gives(fmt.Sprintf("Order.Update().Where(%s).SetQty(%d)", text, qty), func(h *entHandle) (int, error) {
			return h.Order.Update().Where(p).SetQty(qty).Save(h.ctx)
		})
	})
	add("update where, add", func(d *draw) entCall {
		text, p := d.entPredicate()
		return gives(fmt.Sprintf("Child.Update().Where(%s).AddQty(1)", text), func(h *entHandle) (int, error) {
			return h.Child.Update().Where(p).AddQty(1).Save(h.ctx)
		})
	})
	add("update where edges", func(d *draw) entCall {
		key, qty := d.key(), d.qty()
		return gives(fmt.Sprintf("Order.Update().Where(HasChildrenWith(id %s)).SetQty(%d)", key, qty),
			func(h *entHandle) (int, error) {
				return h.Order.Update().Where(order.HasChildrenWith(child.ID(key))).SetQty(qty).Save(h.ctx)
			})
	})
	add("update where no edges", func(d *draw) entCall {
		return gives("Child.Update().Where(Not(HasParent())).AddQty(1)", func(h *entHandle) (int, error) {
			return h.Child.Update().Where(child.Not(child.HasParent())).AddQty(1).Save(h.ctx)
		})
	})
	add("update nothing", func(d *draw) entCall {
		id := d.id()
		return gives(fmt.Sprintf("Order.UpdateOneID(%d)", id), func(h *entHandle) (*entclient.Order, error) {
			return h.Order.UpdateOneID(id).Save(h.ctx)
		})
	})
	add("update s", func(d *draw) entCall {
		qty := d.qty()
		return gives(fmt.Sprintf("Soft.Update().Where(DeletedAtIsNil()).SetQty(%d)", qty),
			func(h *entHandle) (int, error) {
				return h.Soft.Update().Where(soft.DeletedAtIsNil()).SetQty(qty).Save(h.ctx)
			})
	})
}

func entEdges(add adding) {
	add("edges add", func(d *draw) entCall {
		id, keys := d.id(), many(d, d.key)
		return gives(fmt.Sprintf("Order.UpdateOneID(%d).AddChildIDs(%v)", id, keys),
			func(h *entHandle) (*entclient.Order, error) {
				return h.Order.UpdateOneID(id).AddChildIDs(keys...).Save(h.ctx)
			})
	})
	add("edges remove", func(d *draw) entCall {
		id, keys := d.id(), many(d, d.key)
		return gives(fmt.Sprintf("Order.UpdateOneID(%d).RemoveChildIDs(%v).SetQty(1)", id, keys),
			func(h *entHandle) (*entclient.Order, error) {
				return h.Order.UpdateOneID(id).RemoveChildIDs(keys...).SetQty(1).Save(h.ctx)
			})
	})
	add("edges clear", func(d *draw) entCall {
		text, p := d.entPredicate()
		return gives(fmt.Sprintf("Order.Update().Where(%s).ClearChildren()", text), func(h *entHandle) (int, error) {
			return h.Order.Update().Where(p).ClearChildren().Save(h.ctx)
		})
	})
	add("edges m2m", func(d *draw) entCall {
		id, tags := d.id(), many(d, d.id)
		return gives(fmt.Sprintf("Order.UpdateOneID(%d).ClearTags().AddTagIDs(%v)", id, tags),
			func(h *entHandle) (*entclient.Order, error) {
				return h.Order.UpdateOneID(id).ClearTags().AddTagIDs(tags...).Save(h.ctx)
			})
	})
	add("edges one", func(d *draw) entCall {
		id, part := d.id(), 1+d.Int64N(2)
		return gives(fmt.Sprintf("Order.UpdateOneID(%d).ClearPart().SetPartID(%d)", id, part),
			func(h *entHandle) (*entclient.Order, error) {
				return h.Order.UpdateOneID(id).ClearPart().SetPartID(part).Save(h.ctx)
			})
	})
	add("edges of the other side", func(d *draw) entCall {
		key, of := d.key(), d.id()
		return gives(fmt.Sprintf("Child.UpdateOneID(%s).SetParentID(%d)", key, of),
			func(h *entHandle) (*entclient.Child, error) {
				return h.Child.UpdateOneID(key).SetParentID(of).Save(h.ctx)
			})
	})
}

func entDeletes(add adding) {
	add("delete one", func(d *draw) entCall {
		id := d.key()
		return does(fmt.Sprintf("Child.DeleteOneID(%s)", id), func(h *entHandle) error {
			return h.Child.DeleteOneID(id).Exec(h.ctx)
		})
	})
	add("delete where", func(d *draw) entCall {
		text, p := d.entPredicate()
		return gives(fmt.Sprintf("Order.Delete().Where(%s)", text), func(h *entHandle) (int, error) {
			return h.Order.Delete().Where(p).Exec(h.ctx)
		})
	})
	add("delete all", func(*draw) entCall {
		return gives("Tag.Delete()",
			func(h *entHandle) (int, error) { return h.Tag.Delete().Where(tag.IDGT(0)).Exec(h.ctx) })
	})
	add("delete where edges", func(d *draw) entCall {
		return gives("Child.Delete().Where(HasParent())", func(h *entHandle) (int, error) {
			return h.Child.Delete().Where(child.HasParentWith(order.QtyGT(d.qty()))).Exec(h.ctx)
		})
	})
	add("delete s", func(d *draw) entCall {
		id := d.id()
		return does(fmt.Sprintf("Soft.DeleteOneID(%d)", id), func(h *entHandle) error {
			return h.Soft.DeleteOneID(id).Exec(h.ctx)
		})
	})
	add("delete s where", func(d *draw) entCall {
		text, p := d.entPredicate()
		return gives(fmt.Sprintf("Soft.Delete().Where(%s)", text), func(h *entHandle) (int, error) {
			return h.Soft.Delete().Where(p).Exec(h.ctx)
		})
	})
}
