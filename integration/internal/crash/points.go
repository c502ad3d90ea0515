package crash

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// trap ends the process when the process has passed the point often enough.
type trap struct {
	point Point
	warm  int64
	after int64
	seed  uint64

	written, acks, hits atomic.Int64
}

// at passes a point.
func (t *trap) at(p Point) {
	if t.due(p) {
		die()
	}
}

// due passes a point and reports whether the process has to end here.
func (t *trap) due(p Point) bool {
	return t.point == p && t.acks.Load() >= t.warm && t.hits.Add(1) == t.after
}

// random makes the choices inside a point.
func (t *trap) random() *rand.Rand { return rand.New(rand.NewPCG(t.seed, 1)) }

// die ends the process like kill -9: no deferred function and no flush runs after it.
func die() {
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {}
}

// spin lets a short time pass without giving up the processor for longer.
func spin(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
	}
}

// repository passes points around claims and marks.
type repository struct {
	core.Repository
	trap  *trap
	batch *batch
	cold  *coldRows
}

func (r *repository) claimed(rows []core.Claimed, err error) ([]core.Claimed, error) {
	if err == nil && len(rows) > 0 {
		r.trap.at(AfterClaim)
		r.batch.claimed(rows)
		r.cold.add(rows)
	}
	return rows, err
}

func (r *repository) ClaimUnordered(ctx context.Context, req core.ClaimRequest) ([]core.Claimed, error) {
	return r.claimed(r.Repository.ClaimUnordered(ctx, req))
}

func (r *repository) ClaimHeads(ctx context.Context, req core.ClaimRequest,
	after core.KeyID,
) ([]core.Claimed, core.KeyID, error) {
	rows, next, err := r.Repository.ClaimHeads(ctx, req, after)
	rows, err = r.claimed(rows, err)
	return rows, next, err
}

func (r *repository) ClaimKey(ctx context.Context, req core.ClaimRequest, lane core.KeyID) ([]core.Claimed, error) {
	return r.claimed(r.Repository.ClaimKey(ctx, req, lane))
}

func (r *repository) MarkDone(ctx context.Context, done []core.Done, deleteRows bool) (int, error) {
	r.trap.at(BeforeMark)
	n, err := r.Repository.MarkDone(ctx, done, deleteRows)
	if err == nil {
		r.cold.forget(done)
		r.trap.at(AfterMark)
	}
	return n, err
}

// coldRows are the rows that this process has claimed.
type coldRows struct {
	mu  sync.Mutex
	ids map[core.RowID]bool
}

func (c *coldRows) add(rows []core.Claimed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids == nil {
		c.ids = map[core.RowID]bool{}
	}
	for i := range rows {
		c.ids[rows[i].ID] = true
	}
}

// forget keeps a long run from growing.
func (c *coldRows) forget(done []core.Done) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range done {
		delete(c.ids, d.ID)
	}
}

type coldKey struct{}

// mark notes in the context of a publish whether its row was claimed.
func (c *coldRows) mark(ctx context.Context, id core.RowID) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return context.WithValue(ctx, coldKey{}, c.ids[id])
}

func isCold(ctx context.Context) bool {
	cold, _ := ctx.Value(coldKey{}).(bool)
	return cold
}

// batch follows one claim of several rows until half of them are published.
type batch struct {
	trap *trap
	mu   sync.Mutex
	open map[core.RowID]bool
	half int
}

func (b *batch) claimed(rows []core.Claimed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.trap.point != MidBatch || len(b.open) > 0 || len(rows) < 4 {
		return
	}
	b.open, b.half = map[core.RowID]bool{}, len(rows)/2
	for i := range rows {
		b.open[rows[i].ID] = true
	}
}

func (b *batch) published(id core.RowID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open[id] {
		return
	}
	delete(b.open, id)
	if b.half--; b.half == 0 {
		b.trap.at(MidBatch)
		b.open = nil
	}
}

// publisher passes points around a publish.
type publisher struct {
	core.Publisher
	trap  *trap
	batch *batch
	cold  *coldRows

	markFirst core.Repository // only in the mutant that marks before it publishes
}

func (p *publisher) Publish(ctx context.Context, d core.Delivery) error {
	if p.markFirst != nil {
		if _, err := p.markFirst.MarkDone(ctx, []core.Done{{ID: d.RowID}}, false); err != nil {
			return err
		}
	}
	err := p.Publisher.Publish(p.cold.mark(ctx, d.RowID), d)
	if err == nil {
		p.accepted(d.RowID)
	}
	return err
}

func (p *publisher) accepted(id core.RowID) {
	p.trap.acks.Add(1)
	p.trap.at(AfterAck)
	p.batch.published(id)
}

// asItIs returns an AsyncPublisher if p wraps one, because the relay looks for that interface.
func (p *publisher) asItIs() core.Publisher {
	if async, ok := p.Publisher.(core.AsyncPublisher); ok {
		return &asyncPublisher{publisher: p, async: async}
	}
	return p
}

// asyncPublisher passes the points when the broker has answered for an event.
type asyncPublisher struct {
	*publisher
	async core.AsyncPublisher
}

func (p *asyncPublisher) PublishAsync(ctx context.Context, d core.Delivery, done func(string, error)) {
	p.async.PublishAsync(p.cold.mark(ctx, d.RowID), d, func(receipt string, err error) {
		if err == nil {
			p.accepted(d.RowID)
		}
		done(receipt, err)
	})
}
