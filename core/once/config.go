package once

import (
	"cmp"
	"context"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/callback"
	"github.com/ormoutbox/ormoutbox/core/internal/problems"
	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
)

// Config configures a Runner. Only a store is required. The zero value of every other field means
// its documented default.
type Config struct {
	// Store of the lease form, for Do. Required unless TxStore is set.
	Store Store
	// TxStore of the transaction form, for DoTx and RunInTx. Default: Store, if it is also a
	// TxStore, as the store of package sqlonce is.
	TxStore TxStore

	// Lease is how long a key stays held by a process that died. Work may take longer: the lease is
	// extended at each third of it. Default: 30 s, at most MaxLease.
	Lease time.Duration
	// TTL is how long finished work is remembered. A later call runs the work again. TTL must be
	// longer than the time in which any caller may ask again. Default: 24 h, at most MaxTTL.
	TTL time.Duration
	// MaxResult is the largest [Result.Data], in bytes. Default: 1 MiB.
	MaxResult int
	// Wait is how long Do waits for another holder of the key before it returns [ErrInProgress].
	// Negative: it does not wait. Default: 5 s. A broker may redeliver a message while its holder
	// works or has died. Without the wait, the message would be redelivered in a busy loop.
	Wait time.Duration
	// StoreTimeout bounds one request of Do for the key, and one recording of a result with its
	// repetitions. The recording goes on after the caller's context has ended. StoreTimeout must be
	// shorter than Lease. Default: 5 s, or half of Lease if that is shorter.
	StoreTimeout time.Duration
	// RefuseStale makes Do, DoTx and RunInTx return [ErrAbandoned] if an earlier holder disappeared.
	// Default: they run the work again.
	RefuseStale bool
	// Node names this process in the keys it holds. Default: host name and process id. At most 128
	// bytes.
	Node string
	// CleanupInterval is the pause between two cleanups in Run. CleanupBatch is how many keys one
	// statement deletes. Default: 10 min and 1000.
	CleanupInterval time.Duration
	CleanupBatch    int
	// Archive gets keys whose time to live is over before Cleanup deletes them, at most 100 at
	// once, with results of at most core.ArchiveBytes unless a single one is larger. If it returns
	// an error or panics, they stay, Cleanup returns the error, and the next cleanup begins with
	// them. Keys may come again: after a crash, and if two processes clean up at once. An archive
	// must recognise them by their Key and Fence. It must return when ctx ends, a minute after the
	// call at the latest. A call that has not returned a second later is abandoned, and no other
	// call begins until it returns. The archive does not get a key that was used again after its
	// time to live and before the cleanup. Every process that cleans up needs the same Archive.
	// Store must be an Archiver, such as package sqlonce's. Package redisonce's store is not,
	// because Redis deletes expired keys itself. Default: none.
	Archive func(ctx context.Context, keys []ArchivedKey) error

	// Observer is called with everything that happens, for metrics. Default: none.
	Observer *Observer
}

// withDefaults returns c with every zero field set to its default.
func (c Config) withDefaults() Config {
	if c.TxStore == nil {
		if s, ok := c.Store.(TxStore); ok {
			c.TxStore = s
		}
	}
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.TTL = cmp.Or(c.TTL, 24*time.Hour)
	c.MaxResult = cmp.Or(c.MaxResult, 1<<20)
	c.StoreTimeout = cmp.Or(c.StoreTimeout, min(5*time.Second, c.Lease/2))
	c.Wait = cmp.Or(c.Wait, 5*time.Second)
	c.CleanupInterval = cmp.Or(c.CleanupInterval, 10*time.Minute)
	c.CleanupBatch = cmp.Or(c.CleanupBatch, 1000)
	return c
}

// Validate reports every problem of c at once. New calls it.
func (c Config) Validate() error {
	c = c.withDefaults()
	bad := problems.List{Of: "once: config: "}
	bad.If(c.Store == nil && c.TxStore == nil, "Store is missing")
	_, archives := c.Store.(Archiver)
	bad.If(c.Archive != nil && !archives, "Archive needs a Store that is an Archiver, and a %T is none", c.Store)
	lease, ttl := CheckLease(c.Lease), CheckTTL(c.TTL)
	bad.If(lease != nil, "Lease: %w", lease)
	bad.If(ttl != nil, "TTL: %w", ttl)
	bad.If(c.MaxResult < 0, "MaxResult %d is negative", c.MaxResult)
	bad.If(c.StoreTimeout <= 0 || c.StoreTimeout >= c.Lease,
		"StoreTimeout %s is not between 0 and Lease %s", c.StoreTimeout, c.Lease)
	node := textcheck.NameProblem(c.Node, 128, false)
	bad.If(node != "", "Node %s", node)
	bad.If(c.CleanupInterval < 0, "CleanupInterval %s is negative", c.CleanupInterval)
	bad.If(c.CleanupBatch < 0, "CleanupBatch %d is negative", c.CleanupBatch)
	return bad.Err()
}

// Observer has the callbacks of a Runner for metrics and traces. Fields may be nil. Many goroutines
// call them. They must be fast, must not block and must not panic. New fields may be added.
type Observer struct {
	// Decided: a store answered a request for a key, or failed to (State is 0 then).
	Decided func(info DecideInfo)
	// Ran: the work was run.
	Ran func(info RunInfo)
	// LeaseLost: the lease of running work was lost or could not be extended in time; its context
	// has ended.
	LeaseLost func(key Key, err error)
	// Retried: a transaction failed and is run again as a whole.
	Retried func(key Key, err error)
	// Cleaned: a chunk of expired keys was deleted, or the deletion failed.
	Cleaned func(keys int, err error)
}

// Forms of holding a key, as DecideInfo and RunInfo have them.
const (
	formLease = "lease"
	formTx    = "tx"
)

// DecideInfo describes one answer of a store.
type DecideInfo struct {
	Key       Key
	Form      string // lease or tx
	State     State
	TakenOver bool          // an earlier holder disappeared
	Waited    time.Duration // until this answer, pauses included
	Err       error
}

// RunInfo describes one run of the work.
type RunInfo struct {
	Key      Key
	Form     string // lease or tx
	Attempt  int    // see Acquired
	Duration time.Duration
	// error of the work, or of recording its end; nil: done. It is a *core.PanicError if the work
	// panicked
	Err error
}

// withDefaults returns a copy whose nil fields do nothing.
func (o *Observer) withDefaults() Observer {
	all := callback.Present(o)
	return Observer{
		Decided:   callback.Each1(all, func(o *Observer) func(DecideInfo) { return o.Decided }),
		Ran:       callback.Each1(all, func(o *Observer) func(RunInfo) { return o.Ran }),
		LeaseLost: callback.Each2(all, func(o *Observer) func(Key, error) { return o.LeaseLost }),
		Retried:   callback.Each2(all, func(o *Observer) func(Key, error) { return o.Retried }),
		Cleaned:   callback.Each2(all, func(o *Observer) func(int, error) { return o.Cleaned }),
	}
}
