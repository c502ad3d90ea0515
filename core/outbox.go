package core

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/cause"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/mark"
)

// Outbox records events in transactions and relays them to a publisher. Create it with New. It is
// safe for use by several goroutines.
type Outbox struct {
	cfg    Config
	obs    Observer
	topics topics

	relay     atomic.Pointer[relay] // nil: this process does not relay now
	mu        sync.Mutex            // guards users and running, and changes of relay
	users     int                   // Run and Drain calls that share the relay
	running   bool
	ended     error // of the last Run, unless it never ran
	health    healthCheck
	warnOnce  sync.Once
	unrelayed unrelayed
	claims    atomic.Int64 // the last claim number that was given out
	notifier  notifier
	gauge     *backlogGauge  // nil: no limit
	random    func() float64 // in [0, 1)
}

// claimNo returns a claim number that this Outbox has not used. The node's name has a random
// suffix, so that no claim of an earlier process equals it.
func (o *Outbox) claimNo() int64 { return o.claims.Add(1) }

// New returns an Outbox. It reports every problem of cfg at once and does not use the database.
func New(cfg Config) (*Outbox, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if cfg.Node == "" {
		host, _ := os.Hostname()
		cfg.Node = fmt.Sprintf("%s-%d", clip(host, 64), os.Getpid())
	}
	var incarnation [4]byte
	rand.Read(incarnation[:])
	cfg.Node += "-" + hex.EncodeToString(incarnation[:])
	o := &Outbox{cfg: cfg, obs: cfg.Observer.withDefaults(), random: mathrand.Float64, health: newHealthCheck()}
	o.topics, o.gauge = newTopics(&o.cfg), newBacklogGauge(&o.cfg)
	o.notifier.notify, o.notifier.logger = cfg.Wake.Notify, cfg.Logger
	return o, nil
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

	var items []*item // nil for rows that do not go hot
	claimNo := o.claimNo()
	r := o.relay.Load()
	if r != nil && tracked {
		items = r.reserve(rows, claimNo)
	}
	start := time.Now()
	insertCtx := mark.Insert(ctx, !o.cfg.DisablePrepare)
	req := InsertRequest{Node: o.cfg.Node, ClaimNo: claimNo, Lease: o.cfg.HotLease, Rows: rows}
	var places []Inserted
	deferred := false
	if d, ok := o.cfg.Repository.(InsertDeferrer); ok && tracked && !anyEager(events) {
		places, deferred, err = d.InsertOrDefer(insertCtx, tx, req, o.deferral(ctx, r, items, rows))
	} else {
		places, err = o.cfg.Repository.Insert(insertCtx, tx, req)
	}
	if err == nil && !deferred && len(places) != len(rows) {
		err = fmt.Errorf("outbox: repository placed %d of %d rows", len(places), len(rows))
	}
	if err != nil {
		r.unreserve(items)
		if errors.Is(err, ErrDuplicateEvent) && len(rows) == 1 {
			return nil, errtext.Errorf("outbox: insert event %s for topic %q: %w", rows[0].Event.ID,
				rows[0].Event.Topic, err)
		}
		return nil, errtext.Errorf("outbox: insert: %w", err)
	}
	if !deferred {
		o.observeInserted(rows)
	}
	if !tracked {
		o.obs.Untracked(len(rows))
		o.warnOnce.Do(func() {
			o.cfg.Logger.WarnContext(ctx, "outbox: transactions of this kind are not tracked; their events wait "+
				"for the poller",
				"component", "outbox")
		})
		return ids, nil
	}
	if r != nil {
		if deferred {
			r.waits(items)
		} else {
			r.inserted(items, rows, places, start.Add(o.cfg.HotLease))
		}
		tx.OnOutcome(func(out Outcome) { r.transactionEnded(items, rows, out) })
	} else if o.cfg.Publisher != nil && !allByLog(rows) {
		// Run may begin before the commit: its first poll would miss the rows
		tx.OnOutcome(func(out Outcome) {
			if r := o.relay.Load(); r != nil {
				r.transactionEnded(nil, rows, out)
			} else if out == Committed {
				o.unrelayed.committed(&o.cfg)
			}
		})
	}
	if deferred { // Commit reports an unknown outcome to those who wait for it
		tx.OnOutcome(func(Outcome) {})
	}
	if o.notifier.notify != nil && o.othersRelay(r, rows) {
		tx.OnOutcome(o.notifier.ended)
	}
	return ids, nil
}

func allByLog(rows []NewRow) bool {
	return !slices.ContainsFunc(rows, func(row NewRow) bool { return !row.ByLog })
}

func anyEager(events []Event) bool {
	return slices.ContainsFunc(events, func(e Event) bool { return e.Eager })
}

func (o *Outbox) observeInserted(rows []NewRow) {
	for i := range rows {
		o.obs.Inserted(rows[i].Event.Topic, rows[i].Hot)
	}
}

// deferral hears of rows that their connection sends later.
func (o *Outbox) deferral(ctx context.Context, r *relay, items []*item, rows []NewRow) Deferral {
	var start time.Time
	return Deferral{
		Sending: func(claimNo int64) {
			start = time.Now()
			r.claimedAs(items, claimNo, start.Add(o.cfg.HotLease))
		},
		Done: func(places []Inserted, err error) {
			deadline := start.Add(o.cfg.HotLease)
			switch {
			case err == nil && len(places) == len(rows):
				o.observeInserted(rows)
				if r != nil {
					r.inserted(items, rows, places, deadline)
				}
			case err == nil:
				o.observeInserted(rows)
				r.unplaced(items, deadline)
			default:
				r.unreserve(items)
			}
			if errors.Is(err, ErrCommitUnknown) { // no call returns it
				ids := make([]string, len(rows))
				for i := range rows {
					ids[i] = rows[i].Event.ID
				}
				o.cfg.Logger.ErrorContext(ctx, "outbox: a transaction ended without its events, and it is not known "+
					"whether it committed",
					"component", "outbox", "events", ids, "err", errorText(err))
			}
		},
	}
}

// othersRelay reports whether rows are due at their commit that the relay r of this process, if it
// has one, does not publish.
func (o *Outbox) othersRelay(r *relay, rows []NewRow) bool {
	return slices.ContainsFunc(rows, func(row NewRow) bool {
		return !row.ByLog && row.Event.Delay == 0 && (r == nil || !o.topics.relays(row.Event.Topic))
	})
}

// CheckTx returns the error that Publish would return because of tx, whatever the events: one
// wrapping ErrNoTransaction, ErrTxAborted, ErrUntracked or ErrOtherDatabase, else nil. It is for
// authors of adapters, before a statement whose events will be published in tx. A nil tx stands for
// the one that ctx carries.
func (o *Outbox) CheckTx(ctx context.Context, tx Tx) error {
	_, err := o.txOf(ctx, tx)
	return err
}

func (o *Outbox) txOf(ctx context.Context, tx Tx) (Tx, error) {
	if tx == nil {
		var ok bool
		if tx, ok = TxFromContext(ctx); !ok {
			return nil, ErrNoTransaction
		}
	}
	if err := tx.Err(); err != nil {
		return nil, err
	}
	if o.cfg.RejectUntracked && !tx.Tracked() {
		return nil, ErrUntracked
	}
	if c, ok := o.cfg.Repository.(TxChecker); ok {
		return tx, c.CheckTx(ctx, tx)
	}
	return tx, nil
}

// rows prepares the rows of all events, one for each destination, and reports the problems of all
// events.
func (o *Outbox) rows(ctx context.Context, events []Event) ([]NewRow, []string, ends, error) {
	traced := o.cfg.Tracer != nil && o.cfg.Tracer.Create != nil
	var created ends
	var extra map[string]string // headers of ctx
	if o.cfg.Headers != nil {
		extra = o.cfg.Headers(ctx)
	}
	by := cause.Of(ctx)
	rows := make([]NewRow, 0, len(events))
	ids := make([]string, 0, len(events))
	var problems []error
	for i := range events {
		ctx, extra, by := ctx, extra, by
		if own := events[i].ctx; own != nil {
			ctx, extra, by = own, nil, cause.Of(own)
			if o.cfg.Headers != nil {
				extra = o.cfg.Headers(own)
			}
		}
		e, err := o.prepare(ctx, events[i], extra, by)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		ids = append(ids, e.ID)
		for _, topic := range o.cfg.topicsOf(&e) {
			byLog := o.cfg.byLog(topic)
			if !o.topics.routed(topic) && !byLog {
				problems = append(problems,
					fmt.Errorf("%w for topic %q of event type %q: add it to the Router, or to Config.Routes if "+
						"another process relays it",
						ErrNoRoute, clip(topic, 64), clip(e.Type, 64)))
				continue
			}
			row := NewRow{Event: e, ByLog: byLog}
			row.Event.Topic = topic
			if traced {
				created = append(created, o.create(ctx, &row.Event))
			}
			check := o.checkSize
			if byLog {
				check = checkByLog
			}
			if err := check(row.Event); err != nil {
				problems = append(problems, err)
				continue
			}
			if row.ID, err = NewRowID(e.ID, topic); err != nil {
				problems = append(problems, err)
				continue
			}
			if e.Key != "" && !e.Unordered {
				row.KeyID = NewKeyID(e.TenantID, topic, e.Key)
			}
			rows = append(rows, row)
		}
	}
	if len(problems) > 0 {
		return nil, nil, created, errors.Join(problems...)
	}
	if err := distinct(rows); err != nil {
		return nil, nil, created, err
	}
	return rows, ids, created, nil
}

// checkSize asks the publisher of this process whether it could publish e.
// topicsOf returns the destinations of an event. By default events of one aggregate have one topic,
// because order is kept only within a topic.
func (c *Config) topicsOf(e *Event) []string {
	if routes := c.Routes[e.Type]; e.Topic == "" && len(routes) > 0 {
		return routes
	}
	return []string{cmp.Or(e.Topic, e.AggregateType, e.Type)}
}

func (o *Outbox) checkSize(e Event) error {
	if sc, ok := o.cfg.Publisher.(SizeChecker); ok {
		if err := sc.CheckSize(e); err != nil {
			return fmt.Errorf("%w: type %q for topic %q: %w", ErrInvalidEvent, clip(e.Type, 64), clip(e.Topic, 64), err)
		}
	}
	return nil
}

// distinct refuses the same event for the same topic twice in one call, without a query.
func distinct(rows []NewRow) error {
	if len(rows) < 2 {
		return nil
	}
	seen := make(map[RowID]bool, len(rows))
	for i := range rows {
		if seen[rows[i].ID] {
			return fmt.Errorf("%w: %s for topic %q is in the call twice", ErrDuplicateEvent, rows[i].Event.ID,
				clip(rows[i].Event.Topic, 64))
		}
		seen[rows[i].ID] = true
	}
	return nil
}
