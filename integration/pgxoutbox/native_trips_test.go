package pgxoutbox_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// trips counts round trips that have ended: reads that follow a write.
type trips struct {
	net.Conn
	n       *atomic.Int64
	writing *atomic.Bool
}

func (c trips) Write(b []byte) (int, error) {
	c.writing.Store(true)
	return c.Conn.Write(b)
}

func (c trips) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.writing.Swap(false) {
		c.n.Add(1)
	}
	return n, err
}

// counted counts the batches and the other statements of a connection.
type counted struct{ batches, others atomic.Int64 }

func (c *counted) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.others.Add(1)
	return ctx
}

func (c *counted) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.batches.Add(1)
	return ctx
}

func (*counted) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (*counted) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*counted) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// A mark, an insert and each statement of a claim take one round trip, once they are prepared.
// After a slow claim, the next claim has a second statement.
func TestRoundTripsOfNativePGX(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	var writing atomic.Bool
	var sent counted
	pool := adapters.OpenPGX(t, testdb.Postgres(t), func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.ConnConfig.Tracer = &sent
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return trips{conn, &n, &writing}, err
		}
		// Pings of idle connections would be counted too, on a slow machine.
		c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	})
	repo, err := pgxoutbox.NewRepository(pool.Pool, sqloutbox.Config{})
	fixture.NoError(t, err)
	fixture.NoError(t, repo.Migrate(t.Context()))
	// A Notify after the commit would be counted too.
	ob, err := core.New(core.Config{Repository: repo, Wake: core.WakePolicy{Disable: true}})
	fixture.NoError(t, err)
	w := &world{T: t, pool: pool, ob: ob}
	claimNo := int64(0)
	claim := func() core.ClaimRequest {
		claimNo++
		return core.ClaimRequest{
			Node: "node", ClaimNo: claimNo, Lease: time.Minute, MaxLease: time.Hour,
			Limit: 1, MaxBytes: 1 << 20, Run: 1, Keys: 10,
		}
	}
	const claims = -1 // one for each statement
	var claimed []core.Claimed
	for round := range 3 {
		for _, step := range []struct {
			name string
			want int64
			do   func() error
		}{
			{"a transaction with an event alone", 1, func() error {
				return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					_, err := pgxoutbox.Publish(t.Context(), ob, tx, core.Event{Type: "noted", Topic: "a", Data: 1})
					return err
				})
			}},
			{"a transaction with an event of a key", 1, func() error {
				return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					_, err := pgxoutbox.Publish(t.Context(), ob, tx,
						core.Event{Type: "noted", Topic: "a", Key: "k", Data: 1})
					return err
				})
			}},
			{"claim", claims, func() (err error) {
				claimed, err = repo.ClaimUnordered(t.Context(), claim())
				return err
			}},
			{"mark done", 1, func() error {
				_, err := repo.MarkDone(t.Context(), []core.Done{{ID: claimed[0].ID}}, false)
				return err
			}},
			{"claim heads", claims, func() (err error) {
				claimed, _, err = repo.ClaimHeads(t.Context(), claim(), core.KeyID{})
				return err
			}},
			{"release", 1, func() error {
				ref := core.ClaimRef{ID: claimed[0].ID, ClaimNo: claimed[0].ClaimNo}
				_, err := repo.Release(t.Context(), "node", []core.ClaimRef{ref})
				return err
			}},
		} {
			before, batches, others := n.Load(), sent.batches.Load(), sent.others.Load()
			w.check(step.do())
			if len(claimed) != 1 && round > 0 {
				t.Fatalf("%s: %d rows are claimed, want 1", step.name, len(claimed))
			}
			if round < 2 { // the first rounds prepare the statements
				continue
			}
			want := step.want
			if want == claims {
				want = max(1, sent.batches.Load()-batches)
				if got := sent.others.Load() - others; got > 0 {
					t.Errorf("%s: %d statements without the settings of the planner", step.name, got)
				}
			}
			if got := n.Load() - before; got != want {
				t.Errorf("%s: %d round trips, want %d", step.name, got, want)
			}
		}
	}
}
