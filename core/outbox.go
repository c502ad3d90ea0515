package core

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/mark"
)

// Outbox records events in transactions and relays them to a publisher. Create it with New. It is
// safe for use by several goroutines.
type Outbox struct {
	cfg Config
	obs Observer

	known    map[string]bool // topics that events may have; nil: all
	relay    Relay           // nil: this process does not relay
	health   healthCheck
	warnOnce sync.Once
	claims   atomic.Int64 // the claims that were given numbers
	notifier notifier
	gauge    *backlogGauge // nil: no limit

	suspicions *suspicions
}

// claimNo returns a claim number that this Outbox has not used, for rows that the path takes. The
// node's name has a random suffix, so that no claim of an earlier process equals it. PathOf reads
// the path from the number, so that no mark has to write it.
func (o *Outbox) claimNo(path Path) int64 {
	n := 2 * o.claims.Add(1)
	if path == PathHot {
		n++
	}
	return n
}

// coldClaimNo is claimNo for rows that the relay claims from the table.
func (o *Outbox) coldClaimNo() int64 { return o.claimNo(PathCold) }

// PathOf returns the path of a claim by its number: an odd number is the fast path's, an even one
// the poller's. It is empty for 0, which is no claim.
func PathOf(claimNo int64) Path {
	switch {
	case claimNo == 0:
		return ""
	case claimNo%2 == 0:
		return PathCold
	}
	return PathHot
}

// New returns an Outbox. It reports every problem of cfg at once and does not use the database.
func New(cfg Config) (*Outbox, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	cfg.Logger = cfg.Logger.With("component", "outbox")
	if cfg.Node == "" {
		host, _ := os.Hostname()
		cfg.Node = fmt.Sprintf("%s-%d", errtext.Clip(host, 64), os.Getpid())
	}
	var incarnation [4]byte
	rand.Read(incarnation[:])
	cfg.Node += "-" + hex.EncodeToString(incarnation[:])
	o := &Outbox{cfg: cfg, obs: cfg.Observer.withDefaults(), health: newHealthCheck()}
	o.known, o.gauge = cfg.knownTopics(), newBacklogGauge(cfg.BacklogLimit, cfg.Repository, cfg.Logger)
	o.suspicions = newSuspicions(&cfg)
	o.notifier.notify, o.notifier.logger = cfg.Wake.Notify, cfg.Logger
	if cfg.Relay != nil {
		o.relay = cfg.Relay.NewRelay(cfg, o.coldClaimNo)
	}
	return o, nil
}

// Relay returns the relay that Config.Relay made, and nil without one.
func (o *Outbox) Relay() Relay { return o.relay }

// Run relays events until ctx ends. Then it finishes the publishes that it has begun, writes the
// marks, gives the other rows back, and returns nil. The end takes at most
// relay.Config.ShutdownTimeout. None of its goroutines is left when it returns nil. Before it
// starts, Run checks the tables, and waits while the database is away. Errors of the database or of
// the publisher do not end it. The fast path exists while Run runs; the poller publishes the events
// that were inserted before.
//
// With Config.RelayedByLog and without a Publisher, Run only cleans up, by Retention. Run returns
// ErrNoRelay without Config.Relay, ErrNoPublisher without a Publisher and RelayedByLog, ErrRunning
// if it runs already, an error wrapping ErrNoTables if the tables are missing, and
// ErrShutdownTimeout if a publisher did not return although its context had ended, and
// ErrPoolClosed if the program closed the pool before. Run also logs the error that it returns, so
// that "go ob.Run(ctx)" does not hide it.
func (o *Outbox) Run(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			o.cfg.Logger.ErrorContext(ctx, "outbox: the relay has ended", "error", errtext.Of(err))
		}
	}()
	switch {
	case o.cfg.Publisher == nil && !o.cfg.RelayedByLog:
		return ErrNoPublisher
	case o.relay == nil:
		return ErrNoRelay
	}
	return o.relay.Run(ctx)
}

// Drain publishes every event that is due now, and returns when the marks are written. It is for
// tests, scheduled jobs and commands, with or without Run. Events stay that are due later (retries,
// delays), paused, leased by another process or behind a dead event. Drain keeps the rates of
// destinations (see SetRate), and so it waits. Drain returns an error
// wrapping ErrStopped if a destination is unavailable.
func (o *Outbox) Drain(ctx context.Context) error {
	switch {
	case o.cfg.Publisher == nil:
		return ErrNoPublisher
	case o.relay == nil:
		return ErrNoRelay
	}
	return o.relay.Drain(ctx)
}

// Node returns the name under which this Outbox claims rows: Config.Node and a random suffix.
func (o *Outbox) Node() string { return o.cfg.Node }

// Repository returns the table this Outbox works on.
func (o *Outbox) Repository() Repository { return o.cfg.Repository }

// Publish records events in the transaction, one row for each destination, in one statement where
// the database allows it. A nil tx stands for the transaction that ctx carries. Publish returns the
// ids of the events in their order. Nothing is sent before the commit. After it, this process
// publishes the events at once if Run is active. Otherwise the process that relays publishes them.
//
// ErrNoTransaction, ErrUntracked, ErrTxAborted, ErrOtherDatabase, ErrBacklogFull, ErrInvalidEvent
// and ErrNoRoute are returned before anything is written. ErrDuplicateEvent means that an event id
// exists already for its topic. After any error, roll the transaction back: its state and its
// events belong together.
func (o *Outbox) Publish(ctx context.Context, tx Tx, events ...Event) (ids []string, err error) {
	if tx, err = o.txOf(ctx, tx); err != nil {
		return nil, err
	}
	tracked := tx.Tracked()
	if len(events) == 0 {
		return nil, nil
	}
	if o.gauge != nil {
		if err := o.gauge.check(); err != nil {
			return nil, err
		}
	}
	rows, ids, created, err := o.rows(ctx, events)
	if created != nil {
		defer func() { created.call(err) }()
	}
	if err != nil {
		return nil, err
	}

	claimNo := o.claimNo(PathHot)
	res, lease := o.reserve(rows, claimNo, tracked)
	req := InsertRequest{Node: o.cfg.Node, ClaimNo: claimNo, Lease: lease, Rows: rows}
	insertCtx := mark.Insert(ctx, !o.cfg.DisablePrepare)
	var places []Inserted
	deferred := false
	if d, ok := o.cfg.Repository.(InsertDeferrer); ok && tracked && !anyEager(events) {
		places, deferred, err = d.InsertOrDefer(insertCtx, tx, req, o.deferral(ctx, res, rows))
	} else {
		places, err = o.cfg.Repository.Insert(insertCtx, tx, req)
	}
	if err == nil && !deferred && len(places) != len(rows) {
		err = fmt.Errorf("outbox: repository placed %d of %d rows", len(places), len(rows))
	}
	if err != nil {
		res.Cancel()
		if errors.Is(err, ErrDuplicateEvent) && len(rows) == 1 {
			return nil, errtext.Errorf("outbox: insert event %s for topic %q: %w", rows[0].Event.ID,
				rows[0].Event.Topic, err)
		}
		return nil, errtext.Errorf("outbox: insert: %w", err)
	}
	if deferred {
		res.Deferred()
	} else {
		res.Inserted(places)
		o.observeInserted(rows)
	}
	if !tracked {
		o.obs.Untracked(len(rows))
		o.warnOnce.Do(func() {
			o.cfg.Logger.WarnContext(ctx, "outbox: transactions of this kind are not tracked; their events wait "+
				"for the poller",
			)
		})
		return ids, nil
	}
	// Also without a relay: Commit reports an unknown outcome only if a callback waits for it.
	tx.OnOutcome(res.Ended)
	if o.notifier.notify != nil && o.othersRelay(rows) {
		tx.OnOutcome(o.notifier.onOutcome)
	}
	return ids, nil
}

func anyEager(events []Event) bool {
	return slices.ContainsFunc(events, func(e Event) bool { return e.Eager })
}

func (o *Outbox) observeInserted(rows []NewRow) {
	for i := range rows {
		o.obs.Inserted(rows[i].Event.Topic, rows[i].Hot)
	}
}

// deferral returns the callbacks for rows that their connection sends later.
func (o *Outbox) deferral(ctx context.Context, res Reservation, rows []NewRow) Deferral {
	return Deferral{
		Sending: res.Sending,
		Done: func(places []Inserted, err error) {
			if err == nil {
				res.Inserted(places)
				o.observeInserted(rows)
				return
			}
			res.Cancel()
			if errors.Is(err, ErrCommitUnknown) { // no call returns it
				ids := make([]string, len(rows))
				for i := range rows {
					ids[i] = rows[i].Event.ID
				}
				o.cfg.Logger.ErrorContext(ctx, "outbox: a transaction ended without its events, and it is not known "+
					"whether it committed",
					"events", ids, "error", errtext.Of(err))
			}
		},
	}
}

// othersRelay reports whether rows are due at their commit that no relay of this process publishes.
func (o *Outbox) othersRelay(rows []NewRow) bool {
	return slices.ContainsFunc(rows, func(row NewRow) bool {
		return !row.ByLog && row.Event.Delay == 0 && !o.serves(row.Event.Topic)
	})
}

// CheckTx returns the error that Publish would return because of tx, whatever the events: one
// wrapping ErrNoTransaction, ErrTxAborted, ErrUntracked or ErrOtherDatabase, else nil. It is for
// authors of adapters, before a statement whose events will be published in tx. A nil tx stands for
// ctx's transaction.
func (o *Outbox) CheckTx(ctx context.Context, tx Tx) error {
	_, err := o.txOf(ctx, tx)
	return err
}

var errNoneGiven = fmt.Errorf("%w: none was given, and the context carries none: give the transaction, or the context "+
	"of RunInTx or of the adapter's Context (core.ContextWithTx)", ErrNoTransaction)

func (o *Outbox) txOf(ctx context.Context, tx Tx) (Tx, error) {
	if tx == nil {
		var ok bool
		if tx, ok = TxFromContext(ctx); !ok {
			return nil, errNoneGiven
		}
	}
	if err := tx.Err(); err != nil {
		return nil, err
	}
	if o.cfg.RejectUntracked && !tx.Tracked() {
		return nil, ErrUntracked
	}
	return tx, o.cfg.Repository.CheckTx(ctx, tx)
}

// reserve takes places on the fast path for rows before their insert.
func (o *Outbox) reserve(rows []NewRow, claimNo int64, tracked bool) (Reservation, time.Duration) {
	if o.relay == nil || !tracked {
		return noReservation{}, 0
	}
	return o.relay.Reserve(rows, claimNo)
}

// serves reports whether the relay of this process publishes events of the topic now.
func (o *Outbox) serves(topic string) bool { return o.relay != nil && o.relay.Serves(topic) }

// changed makes the relay of this process look at once.
func (o *Outbox) changed() {
	if o.relay != nil {
		o.relay.Operated()
	}
}
