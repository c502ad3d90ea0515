package truth_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"entgo.io/ent"
	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	_ "github.com/ormoutbox/ormoutbox/integration/internal/entclient/runtime" // the hooks of the schema
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient/schema"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// TestEnt compares the events of Ent's adapter with what triggers have seen.
func TestEnt(t *testing.T) {
	t.Parallel()
	schema.Deleter = func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
		return m.(*entclient.SoftMutation).Client().Mutate(ctx, m)
	}
	eachDatabase(t, func(t *testing.T, db testdb.DB) { runPrograms(t, entORM(), db) })
}

// entHandle is a client, or a transaction of it.
type entHandle struct {
	*entclient.Client
	tx   *entclient.Tx
	ctx  context.Context
	pool *sql.DB
	ob   *entoutbox.Outbox // nil without the outbox
}

var entVariants = []string{"Ent", "Ent with a Debug client"}

func entORM() orm[*entHandle] {
	return orm[*entHandle]{
		name: "Ent", kinds: entKinds(), open: openEnt, variants: entVariants,
		transaction: entTransaction,
		with: func(ctx context.Context, h *entHandle, _ bool) *entHandle {
			with := *h
			with.ctx = ctx
			return &with
		},
		conn: func(h *entHandle) querier {
			if h.tx != nil {
				return h.tx
			}
			return h.pool
		},
	}
}

// entTransaction runs fn in a transaction, or in a savepoint of one.
func entTransaction(h *entHandle, fn func(*entHandle) error) (err error) {
	in, commit, undo := *h, func() error { return nil }, func() error { return nil }
	if h.tx == nil {
		tx, err := h.Tx(h.ctx)
		if err != nil {
			return err
		}
		in.tx, in.Client = tx, tx.Client()
		commit, undo = tx.Commit, tx.Rollback
	} else {
		ctx := context.WithoutCancel(h.ctx)
		if _, err := h.tx.ExecContext(ctx, "SAVEPOINT sp"); err != nil {
			return err
		}
		undo = func() error {
			_, err := h.tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT sp")
			return err
		}
	}
	ended := false
	defer func() {
		if !ended {
			_ = undo()
		}
	}()
	err = fn(&in)
	ended = true
	if err != nil {
		_ = undo()
		return err
	}
	return commit()
}

// openEnt opens a database once for each variant, all on one pool.
func openEnt(t *testing.T, db testdb.DB, outbox bool, n *notes) (all []*entHandle) {
	t.Helper()
	pool := db.Open(t)
	drv := dialect.Driver(entsql.OpenDB(adapters.EntDialect(db), pool))
	var ob *entoutbox.Outbox
	if outbox {
		var err error
		ob, err = entoutbox.New(drv, entoutbox.Config{Outbox: fixture.NewOutbox(t, db, core.Config{})})
		fixture.NoError(t, err)
		tellEnt(ob)
		drv = ob.Driver()
	}
	drv = notingDriver{drv, pool, n}
	for i := range entVariants {
		client := entclient.NewClient(entclient.Driver(drv), entclient.Log(func(...any) {}))
		if outbox {
			client.Use(ob.Hook())
		}
		if i == 1 {
			client = client.Debug()
		}
		all = append(all, &entHandle{Client: client, pool: pool, ob: ob})
	}
	return all
}

// tellEnt has each row told with its columns.
func tellEnt(ob *entoutbox.Outbox) {
	tell := func(table string, op core.Op, columns map[string]any) []core.Event {
		return []core.Event{{Type: table + "." + op.String(), Data: columns}}
	}
	entoutbox.On(ob, func(op core.Op, p *entclient.Order) []core.Event {
		return tell("parents", op, map[string]any{
			"id": p.ID, "name": p.Name, "qty": p.Qty, "tenant": p.Tenant, "updated_at": p.UpdatedAt,
		})
	})
	entoutbox.On(ob, func(op core.Op, c *entclient.Child) []core.Event {
		return tell("children", op, map[string]any{
			"id": c.ID, "name": c.Name, "qty": c.Qty, "tenant": c.Tenant, "parent_id": c.ParentID,
		})
	})
	entoutbox.On(ob, func(op core.Op, p *entclient.Part) []core.Event {
		return tell("parts", op, map[string]any{"id": p.ID, "name": p.Name, "qty": p.Qty, "parent_id": p.ParentID})
	})
	entoutbox.On(ob, func(op core.Op, t *entclient.Tag) []core.Event {
		return tell("tags", op, map[string]any{"id": t.ID, "name": t.Name, "qty": t.Qty})
	})
	entoutbox.On(ob, func(op core.Op, s *entclient.Soft) []core.Event {
		return tell("softs", op, map[string]any{
			"id": s.ID, "name": s.Name, "qty": s.Qty, "tenant": s.Tenant, "deleted_at": s.DeletedAt,
		})
	})
}

// notingDriver notes what each statement wrote, right after it.
type notingDriver struct {
	dialect.Driver
	pool *sql.DB
	n    *notes
}

func (d notingDriver) Exec(ctx context.Context, query string, args, v any) error {
	return d.n.noted(ctx, d.pool, query, d.Driver.Exec(ctx, query, args, v))
}

func (d notingDriver) Query(ctx context.Context, query string, args, v any) error {
	return d.n.noted(ctx, d.pool, query, d.Driver.Query(ctx, query, args, v))
}

func (d notingDriver) Tx(ctx context.Context) (dialect.Tx, error) {
	tx, err := d.Driver.Tx(ctx)
	if err != nil {
		return nil, err
	}
	return notingTx{tx, d.n}, nil
}

type notingTx struct {
	dialect.Tx
	n *notes
}

func (t notingTx) Exec(ctx context.Context, query string, args, v any) error {
	return t.n.noted(ctx, t, query, t.Tx.Exec(ctx, query, args, v))
}

// Query reads no notes while rows are open: only the outbox has read those of an INSERT already.
func (t notingTx) Query(ctx context.Context, query string, args, v any) error {
	return t.n.noted(ctx, t, query, t.Tx.Query(ctx, query, args, v))
}

func (t notingTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return t.Tx.(querier).QueryContext(ctx, query, args...)
}

func (t notingTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	conn, ok := t.Tx.(interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	})
	if !ok {
		return nil, fmt.Errorf("%T has no ExecContext", t.Tx)
	}
	return conn.ExecContext(ctx, query, args...)
}

// noted notes a statement if it wrote.
func (n *notes) noted(ctx context.Context, q querier, query string, err error) error {
	verb, _, _ := strings.Cut(query, " ")
	op := map[string]core.Op{"INSERT": core.OpCreate, "UPDATE": core.OpUpdate, "DELETE": core.OpDelete}[verb]
	if op == 0 {
		return err
	}
	_, sets, upsert := strings.Cut(query, " ON DUPLICATE KEY UPDATE ")
	nothing := strings.Contains(query, " DO NOTHING") || upsert && !strings.Contains(sets, "VALUES(") &&
		!strings.Contains(sets, "+ ?") && !strings.Contains(sets, "= ?")
	switch {
	case nothing:
	case upsert, strings.Contains(query, " ON CONFLICT"):
		op = core.OpUpsert
	case op == core.OpUpdate:
		if set, _, _ := strings.Cut(query, " WHERE "); strings.Contains(set, "deleted_at") {
			op = core.OpDelete
		}
	}
	n.wrote(ctx, q, op, nothing)
	return err
}
