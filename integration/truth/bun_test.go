package truth_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// TestBun compares the events of the hook of Bun with what triggers have seen.
func TestBun(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testdb.DB) { runPrograms(t, bunORM(), db) })
}

// The models. Their JSON has the names of the columns.
type (
	bParent struct {
		bun.BaseModel `bun:"table:parents,alias:p" json:"-"`
		ID            int64  `bun:",pk,autoincrement" json:"id"`
		Name          string `json:"name"`
		Qty           int64  `json:"qty"`
		Tenant        int64  `json:"tenant"`
		UpdatedAt     int64  `json:"updated_at"`
	}
	bChild struct {
		bun.BaseModel `bun:"table:children" json:"-"`
		ID            string `bun:",pk" json:"id"`
		Name          string `json:"name"`
		Qty           int64  `json:"qty"`
		Tenant        int64  `json:"tenant"`
		ParentID      *int64 `json:"parent_id"`
	}
	bPair struct {
		bun.BaseModel `bun:"table:pairs,alias:c" json:"-"`
		Shop          string `bun:",pk" json:"shop"`
		Code          string `bun:",pk" json:"code"`
		Name          string `json:"name"`
		Qty           int64  `json:"qty"`
		Tenant        int64  `json:"tenant"`
	}
	bSoft struct {
		bun.BaseModel `bun:"table:softs,alias:s" json:"-"`
		ID            int64        `bun:",pk,autoincrement" json:"id"`
		Name          string       `json:"name"`
		Qty           int64        `json:"qty"`
		Tenant        int64        `json:"tenant"`
		DeletedAt     bun.NullTime `bun:",soft_delete,nullzero" json:"deleted_at"`
	}
	bRecord struct {
		bun.BaseModel `bun:"table:records,alias:r" json:"-"`
		ID            int64  `bun:",pk,autoincrement" json:"id"`
		Name          string `json:"name"`
		Qty           int64  `json:"qty"`
		Tenant        int64  `json:"tenant"`
		core.Recorder `bun:"-" json:"-"`
	}
	bTag struct {
		bun.BaseModel `bun:"table:tags" json:"-"`
		ID            int64  `bun:",pk,autoincrement" json:"id"`
		Name          string `json:"name"`
		Qty           int64  `json:"qty"`
	}
)

// bunHandle is the database or a transaction, with the context of statements.
type bunHandle struct {
	bun.IDB
	ctx context.Context
	ob  *bunoutbox.Outbox
}

// connKey is where the connection of a statement is in its context, for the hook that notes.
type connKey struct{}

func bunORM() orm[bunHandle] {
	return orm[bunHandle]{
		name: "Bun", kinds: bunKinds(), open: openBun,
		variants: []string{"Bun", "Bun with a hook before that of the outbox", "Bun with a ConnResolver"},
		transaction: func(h bunHandle, fn func(bunHandle) error) error {
			return h.RunInTx(h.ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				return fn(bunHandle{tx, ctx, h.ob})
			})
		},
		with: func(ctx context.Context, h bunHandle, _ bool) bunHandle {
			return bunHandle{h.IDB, context.WithValue(ctx, connKey{}, bunConn(h)), h.ob}
		},
		conn: bunConn, ownClock: true,
	}
}

func bunConn(h bunHandle) querier {
	switch db := h.IDB.(type) {
	case bun.Tx:
		return db.Tx
	case *bun.DB:
		return db.DB
	}
	return nil
}

// openBun opens a database once for each variant, all on one pool.
func openBun(t *testing.T, db testdb.DB, outbox bool, n *notes) (all []bunHandle) {
	t.Helper()
	first := adapters.OpenBun(t, db, adapters.BunWay{Connector: outbox})
	note := bunNote{n}
	resolved := bun.NewDB(first.DB, first.Dialect(), bun.WithConnResolver(resolver{first.DB}))
	if !outbox {
		for _, b := range []*bun.DB{first, first, resolved} {
			all = append(all, bunHandle{IDB: b.WithQueryHook(note), ctx: t.Context()})
		}
		return all
	}
	ob, err := bunoutbox.New(first, bunoutbox.Config{Outbox: fixture.NewOutbox(t, db, core.Config{})})
	fixture.NoError(t, err)
	tellBun[bParent](ob, "parents")
	tellBun[bChild](ob, "children")
	tellBun[bPair](ob, "pairs")
	tellBun[bSoft](ob, "softs")
	tellBun[bRecord](ob, "records")
	tellBun[bTag](ob, "tags")
	for _, b := range []*bun.DB{
		first.WithQueryHook(ob.Hook()).WithQueryHook(note), first.WithQueryHook(note).WithQueryHook(ob.Hook()),
		resolved.WithQueryHook(ob.Hook()).WithQueryHook(note),
	} {
		all = append(all, bunHandle{b, t.Context(), ob})
	}
	return all
}

// resolver is that of Bun for read replicas.
type resolver struct{ db *sql.DB }

func (r resolver) ResolveConn(context.Context, bun.Query) bun.IConn { return r.db }
func (r resolver) Close() error                                     { return nil }

// tellBun has each row told with its columns.
func tellBun[T any](ob *bunoutbox.Outbox, table string) {
	bunoutbox.OnContext(ob, func(_ context.Context, op core.Op, m *T) ([]core.Event, error) {
		return []core.Event{{Type: table + "." + op.String(), Data: m}}, nil
	})
}

// bunNote notes what each statement wrote, right after it.
type bunNote struct{ n *notes }

func (bunNote) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }

func (h bunNote) AfterQuery(ctx context.Context, event *bun.QueryEvent) {
	q, ok := ctx.Value(connKey{}).(querier)
	if _, model := event.Model.(bun.TableModel); !ok || !model {
		return
	}
	op, nothing := core.OpCreate, false
	switch event.IQuery.(type) {
	case *bun.InsertQuery:
		nothing = strings.Contains(event.Query, "DO NOTHING") || strings.HasPrefix(event.Query, "INSERT IGNORE")
		if strings.Contains(event.Query, "DO UPDATE") || strings.Contains(event.Query, "DUPLICATE KEY UPDATE") {
			op = core.OpUpsert
		}
	case *bun.UpdateQuery:
		op = core.OpUpdate
	case *bun.DeleteQuery:
		op = core.OpDelete
	default:
		return
	}
	h.n.wrote(ctx, q, op, nothing)
}
