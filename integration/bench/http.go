package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// httpLoads has the numbers of clients.
var httpLoads = []int{1, 8}

// Competitors of this section.
const (
	httpPlainName  = "the handler alone"
	httpTxName     = "+ Idempotency-Key, in its transaction"
	httpLeaseName  = "+ Idempotency-Key, under a lease"
	httpReplayName = "a response that is replayed"
)

var httpColumns = []Column{
	{"requests/s", Count},
	{"÷ alone", Ratio},
	{"p50 µs", Count},
	{"p99 µs", Count},
	{"WAL B/request", Count},
}

func runHTTP(ctx context.Context, e *env, s *Section) error {
	s.note("A handler inserts an order in a transaction and answers 201, called without a network. With a key of " +
		"its own each request is carried out; " +
		"a request that comes again is answered from what was kept. In the transaction of the handler the key costs " +
		"one statement to take and one to keep " +
		"the response; under a lease these are two transactions of their own.")
	store, err := sqlonce.New(e.db, sqlonce.Config{Dialect: core.Postgres, Prefix: "bench_http_"})
	if err != nil {
		return err
	}
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	transactor := sqltx.NewTransactor(e.db, core.Postgres)
	keyed := func(tx core.Transactor) (http.Handler, error) {
		keys, err := httpkey.New(httpkey.Config{
			Keys: once.Config{Store: store}, Transactor: tx, Scope: func(*http.Request) string { return "ada" },
			Route: func(*http.Request) string { return fmt.Sprint("/orders ", tx != nil) },
		})
		if err != nil {
			return nil, err
		}
		return keys.Wrap(orderHandler(transactor)), nil
	}
	inTx, err := keyed(transactor)
	if err != nil {
		return err
	}
	leased, err := keyed(nil)
	if err != nil {
		return err
	}

	var next atomic.Int64
	first := core.NewEventID()
	newKey := func() string { return fmt.Sprintf("%s-%d", first, next.Add(1)) }
	if _, err := sendOrder(ctx, inTx, first); err != nil {
		return err
	}
	clients := []struct {
		name    string
		handler http.Handler
		key     func() string
		orders  int64 // how many orders each request stores
	}{
		{httpPlainName, orderHandler(transactor), newKey, 1},
		{httpTxName, inTx, newKey, 1},
		{httpLeaseName, leased, newKey, 1},
		{httpReplayName, inTx, func() string { return first }, 0},
	}
	for _, c := range httpLoads {
		t := s.table(fmt.Sprintf("%d at once", c), httpColumns...)
		rows := make([]*Row, len(clients))
		for i := range clients {
			rows[i] = t.row(clients[i].name, e.opts.Rounds)
		}
		e.checkpoint(ctx)
		err := interleave(e.opts.Rounds, len(clients), func(round, i int) error {
			client := clients[i]
			e.progress.show("http, %d at once, round %d of %d: %s", c, round+1, e.opts.Rounds, client.name)
			return labelled(ctx, client.name, func(ctx context.Context) error {
				before, err := e.count(ctx, "SELECT count(*) FROM bench_order")
				if err != nil {
					return err
				}
				var done atomic.Int64
				l, err := e.produce(ctx, c, e.opts.Duration, func(ctx context.Context) error {
					replayed, err := sendOrder(ctx, client.handler, client.key())
					if err == nil && replayed != (client.orders == 0) {
						err = fmt.Errorf("replayed: %t", replayed)
					}
					done.Add(1)
					return err
				})
				if err != nil {
					return err
				}
				after, err := e.count(ctx, "SELECT count(*) FROM bench_order")
				if err != nil {
					return err
				}
				if after-before != done.Load()*client.orders {
					return fmt.Errorf("%d orders are stored, %d requests were carried out", after-before,
						done.Load()*client.orders)
				}
				wal, err := e.wal(ctx)
				if err != nil {
					return err
				}
				t.set(rows[i], round, "requests/s", l.rate())
				t.set(rows[i], round, "p50 µs", percentile(l.latencies, 50))
				t.set(rows[i], round, "p99 µs", percentile(l.latencies, 99))
				t.set(rows[i], round, "WAL B/request", float64(wal-l.from.wal)/float64(len(l.latencies)))
				return nil
			})
		})
		if err != nil {
			return err
		}
		t.divide("÷ alone", "requests/s", func(*Row) *Row { return t.find(httpPlainName) })
		t.summarize()
	}
	return nil
}

// orderHandler stores an order in the transaction of the request, or in a new one if it has none.
func orderHandler(transactor core.Transactor) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		store := func(ctx context.Context, tx core.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO bench_order (customer, amount, created_at) VALUES ($1, $2, now())",
				"ada", 4200)
			return err
		}
		var err error
		if tx, ok := core.TxFromContext(r.Context()); ok {
			err = store(r.Context(), tx)
		} else {
			err = transactor.RunInTx(r.Context(), store)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"order":"stored"}`))
	})
}

// sendOrder sends one request and reports whether its response is a replay.
func sendOrder(ctx context.Context, h http.Handler, key string) (replayed bool, err error) {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/orders",
		bytes.NewReader([]byte(`{"customer":"ada","amount":4200}`)))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusCreated {
		return false, fmt.Errorf("answered with %d: %s", w.Code, w.Body)
	}
	return w.Header().Get("Idempotency-Replayed") == "true", nil
}
