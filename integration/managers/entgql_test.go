package managers_test

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"entgo.io/contrib/entgql"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/handler"
	"github.com/99designs/gqlgen/graphql/handler/transport"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	_ "github.com/ormoutbox/ormoutbox/integration/internal/entclient/runtime" // the hooks and policies of the schema
	"github.com/ormoutbox/ormoutbox/integration/internal/entplain"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// openTx is what entgql generates as client.OpenTx.
func openTx(ctx context.Context, client *entclient.Client) (context.Context, driver.Tx, error) {
	tx, err := client.Tx(ctx)
	if err != nil {
		return nil, nil, err
	}
	ctx = entclient.NewTxContext(ctx, tx)
	ctx = entclient.NewContext(ctx, tx.Client())
	return ctx, tx, nil
}

// gqlServer is a GraphQL server with one mutation, whose resolver is fn, in a transaction of
// entgql.Transactioner.
func gqlServer(t *testing.T, open entgql.TxOpenerFunc, fn func(ctx context.Context) error) (mutate func() error) {
	t.Helper()
	schema := gqlparser.MustLoadSchema(&ast.Source{Input: `type Query { a: Int } type Mutation { place: Boolean }`})
	srv := handler.New(&graphql.ExecutableSchemaMock{
		SchemaFunc:     func() *ast.Schema { return schema },
		ComplexityFunc: func(string, string, int, map[string]any) (int, bool) { return 0, false },
		ExecFunc: func(ctx context.Context) graphql.ResponseHandler {
			resolver := graphql.GetOperationContext(ctx).ResolverMiddleware
			return func(ctx context.Context) *graphql.Response { // as generated code does
				_, err := resolver(ctx, func(ctx context.Context) (any, error) { return true, fn(ctx) })
				if err != nil {
					graphql.AddError(ctx, err)
				}
				return &graphql.Response{Data: []byte(`{"place":true}`)}
			}
		},
	})
	srv.AddTransport(transport.POST{})
	srv.Use(entgql.Transactioner{TxOpener: open})
	web := httptest.NewServer(srv)
	t.Cleanup(web.Close)
	return func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL,
			strings.NewReader(`{"query": "mutation { place }"}`))
		fixture.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := web.Client().Do(req)
		fixture.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		fixture.NoError(t, err)
		var answer struct{ Errors []struct{ Message string } }
		fixture.NoError(t, json.Unmarshal(body, &answer))
		if len(answer.Errors) > 0 {
			return errors.New(answer.Errors[0].Message)
		}
		return nil
	}
}

// gqlEnv is an Ent client with an outbox.
type gqlEnv struct {
	*fixture.FastPath
	db     testdb.DB
	client *entclient.Client
	ob     *entoutbox.Outbox
}

func eachGQL(t *testing.T, fn func(t *testing.T, e *gqlEnv)) {
	t.Helper()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		if db.Dialect == core.SQLite {
			db.DSN += "&_pragma=foreign_keys(1)" // Ent requires it
		}
		e := &gqlEnv{FastPath: fixture.NewFastPath(t, db), db: db}
		var cfg entoutbox.Config
		e.Watch(&cfg)
		var err error
		e.ob, err = entoutbox.New(entsql.OpenDB(adapters.EntDialect(db), db.Open(t)), cfg)
		fixture.NoError(t, err)
		e.Outbox = e.ob.Outbox()
		e.client = entclient.NewClient(entclient.Driver(e.ob.Driver()))
		migrateEnt.Lock()
		defer migrateEnt.Unlock()
		fixture.NoError(t, e.client.Schema.Create(t.Context()))
		fn(t, e)
	})
}

// migrateEnt is held during Ent's migration, which completes global tables of the generated code.
var migrateEnt sync.Mutex

// bare opens a transaction as a client generated with entgql does.
func (e *gqlEnv) bare(ctx context.Context) (context.Context, driver.Tx, error) {
	return openTx(ctx, e.client)
}

// bridged is what docs/transaction-managers.md says.
func (e *gqlEnv) bridged(ctx context.Context) (context.Context, driver.Tx, error) {
	ctx, tx, err := openTx(ctx, e.client)
	if err != nil {
		return nil, nil, err
	}
	return entoutbox.Context(ctx, entclient.TxFromContext(ctx)), tx, nil
}

var errResolver = errors.New("the resolver failed")

// mutate runs a mutation twice: the first time its resolver fails after fn.
func (e *gqlEnv) mutate(t *testing.T, open entgql.TxOpenerFunc, fn func(ctx context.Context) error) {
	t.Helper()
	fail := true
	mutate := gqlServer(t, open, func(ctx context.Context) error {
		if err := fn(ctx); err != nil || !fail {
			return err
		}
		return errResolver
	})
	err := mutate()
	fixture.Must(t, err != nil && err.Error() == errResolver.Error(), "the mutation: %v", err)
	e.WantCount(t, "parents", 0)
	fixture.SameSet(t, "events", e.Events(t), nil)
	fail = false
	fixture.NoError(t, mutate())
}

// A resolver publishes in the transaction that entgql began.
func TestTransactionerPublish(t *testing.T) {
	t.Parallel()
	eachGQL(t, func(t *testing.T, e *gqlEnv) {
		e.RunRelay(t)
		e.client.Use(e.ob.Hook())
		entoutbox.On(e.ob, func(op core.Op, o *entclient.Order) []core.Event {
			return []core.Event{{Type: "order." + op.String()}}
		})
		e.mutate(t, e.bare, func(ctx context.Context) error {
			if err := entclient.FromContext(ctx).Order.Create().SetName("a").Exec(ctx); err != nil {
				return err
			}
			return e.ob.Publish(ctx, entclient.TxFromContext(ctx), fixture.Event("said"))
		})
		e.WantHot(t, "order.create", "said")
		e.WantCount(t, "parents", 1)
	})
}

// WithTx and a Transactor in a resolver would begin a second transaction, which commits although the
// resolver fails.
func TestTransactionerAndWithTx(t *testing.T) {
	t.Parallel()
	eachGQL(t, func(t *testing.T, e *gqlEnv) {
		ways := map[string]func(ctx context.Context) error{
			"WithTx": func(ctx context.Context) error {
				return entoutbox.WithTx(ctx, e.client.Tx, func(ctx context.Context, tx *entclient.Tx) error {
					if err := tx.Order.Create().SetName("a").Exec(ctx); err != nil {
						return err
					}
					return e.ob.Publish(ctx, tx, fixture.Event("said"))
				})
			},
			"Transactor": func(ctx context.Context) error {
				return entoutbox.Transactor(e.client.Tx).RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
					tx, err := entoutbox.FromContext[*entclient.Tx](ctx)
					if err != nil {
						return err
					}
					if err := tx.Order.Create().SetName("a").Exec(ctx); err != nil {
						return err
					}
					return e.ob.Publish(ctx, nil, fixture.Event("said"))
				})
			},
		}
		for name, way := range ways {
			mutate := gqlServer(t, e.bare, func(ctx context.Context) error {
				err := way(ctx)
				fixture.Check(t, errors.Is(err, core.ErrOtherTransactor), "%s: %v", name, err)
				return errResolver
			})
			fixture.Check(t, mutate() != nil, "the resolver failed, the mutation did not")
			e.WantCount(t, "parents", 0)
			e.WantCount(t, "outbox_event", 0)
		}
		// After the transaction WithTx begins its own, and without it in the context.
		own := func(ctx context.Context, name string) error {
			return entoutbox.WithTx(ctx, e.client.Tx, func(ctx context.Context, tx *entclient.Tx) error {
				return tx.Order.Create().SetName(name).Exec(ctx)
			})
		}
		var kept context.Context
		fixture.NoError(t, gqlServer(t, e.bare, func(ctx context.Context) error {
			kept = context.WithoutCancel(ctx) //nolint:fatcontext // it is used after the request
			return nil
		})())
		fixture.NoError(t, own(kept, "after"))
		e.WantCount(t, "parents", 1)
		if e.db.Dialect == core.SQLite {
			return // it has one writer
		}
		fixture.Check(t, gqlServer(t, e.bare, func(ctx context.Context) error {
			if err := own(entclient.NewTxContext(ctx, nil), "beside"); err != nil {
				t.Error(err)
			}
			return errResolver
		})() != nil, "the resolver failed, the mutation did not")
		e.WantCount(t, "parents", 2)
	})
}

// A client without the feature sql/execquery is refused too, also in a context that was derived.
func TestWithTxBesideAPlainClient(t *testing.T) {
	t.Parallel()
	eachGQL(t, func(t *testing.T, e *gqlEnv) {
		client := entplain.NewClient(entplain.Driver(e.ob.Driver()))
		tx, err := client.Tx(t.Context())
		fixture.NoError(t, err)
		defer tx.Rollback()
		ctx, cancel := context.WithTimeout(entplain.NewTxContext(t.Context(), tx), time.Minute)
		defer cancel()
		err = entoutbox.WithTx(context.WithoutCancel(ctx), client.Tx, func(context.Context, *entplain.Tx) error {
			t.Error("the function ran")
			return nil
		})
		fixture.WantError(t, err, core.ErrOtherTransactor)
	})
}

// With entoutbox.Context in the opener, everything that looks into the context joins.
func TestTransactionerWithContext(t *testing.T) {
	t.Parallel()
	eachGQL(t, func(t *testing.T, e *gqlEnv) {
		e.RunRelay(t)
		ran := 0
		e.mutate(t, e.bridged, func(ctx context.Context) error {
			tx := entclient.TxFromContext(ctx)
			if err := entclient.FromContext(ctx).Order.Create().SetName("a").Exec(ctx); err != nil {
				return err
			}
			if err := e.ob.Publish(ctx, nil, fixture.Event("nil")); err != nil {
				return err
			}
			err := entoutbox.WithTx(ctx, e.client.Tx, func(ctx context.Context, inner *entclient.Tx) error {
				fixture.Check(t, inner == tx, "WithTx has another transaction")
				fixture.NoError(t, e.ob.Publish(ctx, inner, fixture.Event("undone")))
				return fixture.ErrNoStock
			})
			fixture.Check(t, errors.Is(err, fixture.ErrNoStock), "WithTx: %v", err)
			err = entoutbox.Transactor(e.client.Tx).RunInTx(ctx, func(ctx context.Context, own core.Tx) error {
				found, err := entoutbox.FromContext[*entclient.Tx](ctx)
				fixture.Check(t, err == nil && found == tx, "FromContext: %v", err)
				return sqltx.AfterCommit(own, func() { ran++ })
			})
			if err != nil {
				return err
			}
			return e.ob.Publish(ctx, tx, fixture.Event("said"))
		})
		e.WantHot(t, "nil", "said")
		e.WantCount(t, "parents", 1)
		fixture.Check(t, ran == 1, "AfterCommit ran %d times", ran)
	})
}

// The error of a Publish that finds no transaction says what to do.
func TestPublishWithoutTransactionSaysTheWayOut(t *testing.T) {
	t.Parallel()
	eachGQL(t, func(t *testing.T, e *gqlEnv) {
		err := gqlServer(t, e.bare, func(ctx context.Context) error {
			return e.ob.Publish(ctx, nil, fixture.Event("x"))
		})()
		for _, text := range []string{"no transaction", "ent.TxFromContext(ctx)", "entoutbox.Context"} {
			fixture.Check(t, err != nil && strings.Contains(err.Error(), text), "the error %v lacks %q", err, text)
		}
		fixture.WantError(t, e.ob.Publish(t.Context(), nil, fixture.Event("x")), core.ErrNoTransaction)
	})
}
