package crash

import (
	"context"
	"os"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Sample is what a child uses at a moment, after a garbage collection.
type Sample struct {
	Heap       uint64 `json:"heap"` // bytes
	Goroutines int    `json:"goroutines"`
	Files      int    `json:"files"` // open files, with network connections
}

// report sends the Ledger samples until ctx ends.
func (s Spec) report(ctx context.Context, client *Client) {
	var leak [][]byte
	tick := time.NewTicker(s.Sample)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if s.Mutant == Leak {
			leak = append(leak, make([]byte, 1<<20))
		}
		runtime.GC()
		heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(heap)
		files, _ := os.ReadDir("/dev/fd")
		now := Sample{Heap: heap[0].Value.Uint64(), Goroutines: runtime.NumGoroutine(), Files: len(files)}
		_, _ = client.ask(ctx, Message{From: s.Name, Sample: &now}) // as with Note
		runtime.KeepAlive(leak)
	}
}

// Samples returns the samples of a process.
func (b *Ledger) Samples(process string) []Sample {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.samples[process]
}

// Handled is the note that says how many records a consumer has handled.
const Handled = "handled"

// take notes how many records a consumer has handled, and waits for the next one. A process that
// has just started says 0, and goes on where others of the same name have ended.
func (b *Ledger) take(m Message) Answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	notes := b.notesOf(m.Take)
	notes[Handled] = max(notes[Handled], m.N)
	b.changed.Broadcast()
	for notes[Handled] == len(b.records) {
		if b.closed {
			return Unavailable
		}
		b.changed.Wait()
	}
	return Answer{Next: &b.records[notes[Handled]], N: notes[Handled] + 1}
}

// Behind returns how many records the slowest of the consumers has not yet handled.
func (b *Ledger) Behind(consumers []string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range consumers {
		n = max(n, len(b.records)-b.notes[c][Handled])
	}
	return n
}

// consume handles the records of the Ledger until ctx ends. The effect of an event is a row of
// business_effect.
func (s Spec) consume(ctx context.Context, client *Client) error {
	pool, err := Open(s.Dialect, s.DSN)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := sqlinbox.New(pool, sqlinbox.Config{Dialect: s.Dialect})
	if err != nil {
		return err
	}
	transactor := sqltx.NewTransactor(pool, s.Dialect)
	keep := max(2*s.Keep, time.Minute) // the copies after a kill come earlier
	in, err := inbox.New(inbox.Config{
		Consumer: s.Consumer, Handler: "effect", Transactor: transactor, Store: store,
		Retention: keep, BrokerRetention: keep / 2, CleanupInterval: keep / 4,
	})
	if err != nil {
		return err
	}
	cleanup := make(chan error, 1)
	go func() { cleanup <- in.Run(ctx) }()
	for handled := 0; ; {
		a, err := client.ask(ctx, Message{From: s.Name, Take: s.Consumer, N: handled})
		if err != nil {
			if ctx.Err() != nil {
				return <-cleanup
			}
			return err
		}
		insert := "INSERT INTO business_effect (consumer, event) VALUES ('" + s.Consumer + "', '" +
			a.Next.EventID + "')"
		effect := func(ctx context.Context, tx core.Tx, _ inbox.Message) error {
			_, err := tx.Exec(ctx, insert)
			return err
		}
		m := inbox.Message{ID: a.Next.EventID}
		if s.Mutant == NoInbox {
			m.ID = core.NewEventID()
		}
		r := in.Process(ctx, m, effect)
		for r.Again(ctx) {
			r = in.Process(ctx, m, effect)
		}
		switch {
		case r.Action == inbox.Ack:
			handled = a.N
		case ctx.Err() == nil:
			return r.Err
		}
	}
}
