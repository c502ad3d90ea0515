package walrelay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// Relay reads the events of core.Config.RelayedByLog from the log of PostgreSQL and publishes them.
// Create it with New. It is safe for use by several goroutines.
type Relay struct {
	cfg     Config
	db      *database
	repo    *repository
	outbox  *core.Outbox
	node    string
	log     *slog.Logger
	running atomic.Bool
	session atomic.Pointer[session]

	repaired     atomic.Pointer[repairPlace] // how far the latest repair has come
	lastTimeline int32                       // of the latest session

	schema, name string // how the log names the table; set by checkPublication

	registered time.Time // no call of register is needed before
	others     string    // the other programs of the last warning
}

// New returns a Relay. It reports every problem of cfg at once, and uses no connection.
func New(cfg Config) (*Relay, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	tables, err := pgxoutbox.NewRepository(cfg.Pool, cfg.Tables)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errConfig, err)
	}
	r := &Relay{cfg: cfg, db: newDatabase(cfg.Pool, cfg.Tables.Schema, cfg.Tables.Prefix)}
	r.repo = &repository{Repository: tables, skipDead: cfg.Outbox.DeadPolicy == core.SkipDead}
	if l, ok := cfg.Outbox.Publisher.(core.TopicLister); ok {
		r.repo.one = len(l.Topics()) == 1
	}
	cfg.Outbox.Repository = r.repo
	if r.outbox, err = core.New(cfg.Outbox); err != nil {
		return nil, fmt.Errorf("%w: %w", errConfig, err)
	}
	r.log = cfg.Outbox.Logger.With("component", "walrelay", "slot", cfg.Slot)
	host, _ := os.Hostname()
	r.node = fmt.Sprintf("%.64s-%d", host, os.Getpid())
	return r, nil
}

// Repository returns the tables, for the operator's API (core/ops) and for health checks.
func (r *Relay) Repository() *sqloutbox.Repository { return r.repo.Repository }

// Outbox returns the outbox that publishes, for its Health, Backlog, ListDead, Redrive and Discard.
// Run runs it: do not call its Run.
func (r *Relay) Outbox() *core.Outbox { return r.outbox }

const (
	leastPause = 100 * time.Millisecond
	mostPause  = 5 * time.Second
	standBy    = time.Second // pause between two looks whether the slot is free
)

// Run publishes until ctx ends. It then finishes publishes that it has begun, confirms the progress
// to the server, and returns nil, after at most Outbox.ShutdownTimeout and a few seconds.
//
// While another process reads the slot, Run stands by and publishes nothing. It waits while the
// database is away. It returns an error if a person has to change something: it wraps ErrNotSetUp,
// ErrSlotTaken, ErrSlotLost or ErrSlotMoved, core.ErrNoTables, core.ErrRunning if it runs already,
// or core.ErrShutdownTimeout. Run also logs the error that it returns.
func (r *Relay) Run(ctx context.Context) (err error) {
	if !r.running.CompareAndSwap(false, true) {
		return core.ErrRunning
	}
	defer r.running.Store(false)
	defer func() {
		if err != nil {
			r.log.ErrorContext(ctx, "outbox: the log is not relayed any more", "error", err)
		}
	}()
	failures, standing := 0, false
	for ctx.Err() == nil {
		s, err := r.lead(ctx)
		if err == nil || errors.Is(err, errStandBy) {
			r.register(ctx) // the row of the slot is there
		}
		if err == nil {
			failures, standing = 0, false
			r.log.InfoContext(ctx, "outbox: this process reads the slot", "epoch", s.epoch, "from", s.start.String())
			err = s.run(ctx)
		}
		switch {
		case ctx.Err() != nil && !errors.Is(err, core.ErrShutdownTimeout):
			return nil
		case isFinal(err):
			return err
		case errors.Is(err, errStandBy):
			if !standing {
				standing = true
				r.log.InfoContext(ctx, "outbox: another process reads the slot, this one stands by")
			}
			sleep(ctx, standBy)
			continue
		}
		failures++
		wait := min(leastPause<<min(failures-1, 10), mostPause)
		wait = time.Duration(float64(wait) * (0.8 + 0.4*rand.Float64())) //nolint:gosec // it spreads retries
		r.log.WarnContext(ctx, "outbox: the log cannot be read now", "failures", failures, "next_try", wait,
			"error", err)
		sleep(ctx, wait)
	}
	return nil
}

// errStandBy: another process has the slot.
var errStandBy = errors.New("walrelay: another process has the slot")

// isFinal reports whether an error needs a person.
func isFinal(err error) bool {
	for _, final := range []error{
		errConfig, errServer, ErrNotSetUp, ErrSlotTaken, ErrSlotLost, ErrSlotMoved, errColumns, errUnreadable,
		core.ErrNoTables,
		core.ErrRunning, core.ErrShutdownTimeout,
	} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// lead takes the slot. It returns errStandBy if another process has it.
func (r *Relay) lead(ctx context.Context) (s *session, err error) {
	if err := r.checkServer(ctx); err != nil {
		return nil, err
	}
	if err := r.checkTables(ctx); err != nil {
		return nil, err
	}
	// a process that stands by needs no connection to the log
	if state, err := r.db.slot(ctx, r.cfg.Slot); err != nil || state != nil && state.active && !state.lost {
		if err == nil {
			err = r.checkSlot(ctx, state)
		}
		return nil, cmp.Or(err, errStandBy)
	}
	conn, id, err := r.dial(ctx)
	if err != nil {
		return nil, err
	}
	if r.lastTimeline != id.Timeline { // it may have other events, under ids that were in use before
		r.lastTimeline = id.Timeline
		r.repaired.Store(nil)
	}
	s = &session{Relay: r, conn: conn, system: id.SystemID, timeline: id.Timeline}
	s.window = newWindow(r.cfg.Window, r.cfg.WindowBytes, r.elsewhere())
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	// One process at a time looks at the slot, and makes or repairs it.
	err = r.alone(ctx, func() error {
		b, must, err := r.look(ctx, s.system)
		if err != nil {
			return err
		}
		if must {
			return s.repair(ctx)
		}
		return s.take(ctx, b)
	})
	return s, err
}

// alone runs fn while this process has the lock of the slot.
func (r *Relay) alone(ctx context.Context, fn func() error) error {
	return pgx.BeginTxFunc(ctx, r.cfg.Pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var got bool
		if err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock(hashtextextended($1::text, 0))",
			"ormoutbox/walrelay/"+r.cfg.Slot).Scan(&got); err != nil {
			return err
		}
		if !got {
			return errStandBy
		}
		if err := untimed(ctx, tx); err != nil { // it is idle while the slot is made
			return err
		}
		return fn()
	})
}

// look decides whether to read the slot on from the bookmark, or to repair it.
func (r *Relay) look(ctx context.Context, system string) (b *bookmark, repair bool, err error) {
	s, err := r.db.slot(ctx, r.cfg.Slot)
	if err != nil {
		return nil, false, err
	}
	if b, err = r.db.bookmark(ctx, r.cfg.Slot); err != nil {
		return nil, false, err
	}
	if s != nil {
		if err := r.checkSlot(ctx, s); err != nil {
			return nil, false, err
		}
	}
	switch {
	case b == nil && s == nil && !r.cfg.Create:
		return nil, false, fmt.Errorf("%w: slot %s is missing: call Setup, or set Create", ErrNotSetUp, r.cfg.Slot)
	case b == nil:
		// A slot that was made by a statement is read from where it begins. If it is lost before
		// the first checkpoint, all events are published again: nothing is known about them.
		b = &bookmark{system: system, repairing: s == nil || s.lost}
		if s != nil {
			b.confirmed = s.confirmed
		}
		others, err := r.db.otherSlots(ctx, r.cfg.Slot)
		if err != nil {
			return nil, false, err
		}
		if others != "" { // perhaps a name that somebody has mistyped
			r.log.Warn("outbox: another slot of walrelay has this table too: both publish each event, and a new slot "+
				"those of the table again; stop this relay if that is not what you want", "others", others)
		}
		_, err = r.db.exec(ctx, `INSERT INTO {log} (slot, epoch, confirmed, spilled, checkpoint, checkpoint_at,
  system_id, repairing)
VALUES ($1::text, 0, $2::text::pg_lsn, '0/0', '0', clock_timestamp(), $3::text, $4::boolean)`, r.cfg.Slot,
			b.confirmed.String(), system, b.repairing)
		return b, b.repairing, err
	case s != nil && s.active && !s.lost:
		return nil, false, errStandBy
	case b.repairing:
		return b, true, nil
	case b.system != system:
		return b, true, r.mayRepair(ErrSlotMoved, "the database is on another server than the one that was read: it "+
			"is a copy, or was restored")
	case s == nil:
		return b, true, r.mayRepair(ErrSlotLost, "the slot was dropped, or did not follow in a failover")
	case s.lost:
		return b, true, r.mayRepair(ErrSlotLost, fmt.Sprintf("the server has removed log that was not read "+
			"(wal_status %s, invalidation_reason %s)", s.wal, cmp.Or(s.invalid, "unknown")))
	}
	return b, false, nil
}

// mayRepair returns the error of a slot that must not be repaired.
func (r *Relay) mayRepair(kind error, why string) error {
	if r.cfg.Repair == RepairAlways || r.cfg.Repair == RepairLost && errors.Is(kind, ErrSlotLost) {
		r.log.Warn("outbox: the slot is made again, and events are published from the table", "reason", why)
		return nil
	}
	return fmt.Errorf("%w: slot %s: %s. Config.Repair = RepairAlways makes it again, and publishes what committed "+
		"since the last checkpoint from the table", kind, r.cfg.Slot, why)
}

// elsewhere returns a function that reports whether the publisher does not take a topic.
func (r *Relay) elsewhere() func(string) bool {
	l, ok := r.cfg.Outbox.Publisher.(core.TopicLister)
	if !ok || l.Topics() == nil {
		return func(string) bool { return false }
	}
	here := map[string]bool{}
	for _, t := range l.Topics() {
		here[t] = true
	}
	return func(t string) bool {
		if !here[t] {
			r.log.Warn("outbox: events of a topic that the publisher does not take are left in the table, for "+
				"another relay", "topic", t)
		}
		return !here[t]
	}
}

// take makes this process the reader of the slot.
func (s *session) take(ctx context.Context, b *bookmark) error {
	promoted, err := s.promoted(ctx)
	if err != nil {
		return err
	}
	err = s.startReplication(ctx, s.conn, b.confirmed)
	if err != nil {
		return slotError(err)
	}
	// The walsender has the slot now, so no other process confirms anything or takes it over.
	if b, err = s.db.takeOver(ctx, s.cfg.Slot, s.node); err != nil {
		return err
	}
	state, err := s.db.slot(ctx, s.cfg.Slot)
	if err != nil {
		return err
	}
	if state == nil {
		return slotError(&pgconn.PgError{Code: stateNoObject, Message: "the slot is gone"})
	}
	if state.confirmed > b.confirmed {
		kind, why := ErrSlotMoved, "somebody else has read it, or has made it again"
		if state.confirmed <= promoted {
			kind, why = ErrSlotLost, "a standby has taken over, and lacked the newest transactions"
		}
		if err := s.mayRepair(kind, fmt.Sprintf("it is at %s, and the relay has confirmed nothing after %s: %s",
			state.confirmed, b.confirmed, why)); err != nil {
			return err
		}
		if _, err := s.db.exec(ctx, "UPDATE {log} SET repairing = true WHERE slot = $1::text AND epoch = $2::bigint",
			s.cfg.Slot, b.epoch); err != nil {
			return err
		}
		return errRepair
	}
	return s.begin(ctx, b, b.confirmed)
}

// errRepair makes the next look repair the slot.
var errRepair = errors.New("walrelay: the slot has to be repaired")

// slotError classifies an error of a slot.
func slotError(err error) error {
	switch sqlState(err) {
	case stateInUse:
		return errStandBy
	case stateNotUsable, stateNoObject: // the next look finds out
		return fmt.Errorf("%w: %w", errRepair, err)
	}
	return replicationError(err)
}

// begin makes the session ready: the table's open keys are read after the takeover.
func (s *session) begin(ctx context.Context, b *bookmark, start pglogrepl.LSN) error {
	keys, err := s.db.openKeys(ctx, s.repo.skipDead)
	if err != nil {
		return err
	}
	s.epoch, s.start = b.epoch, start
	s.confirmed.Store(uint64(start))
	s.window.start(start, b.spilled)
	s.window.spill(keys)
	return nil
}

const (
	registerEvery = 12 * time.Hour
	registerPause = time.Minute // after a failure
)

// program is the path of the main package. It is empty if the program has no path, as with `go run
// file.go`.
var program = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Path == "command-line-arguments" {
		return ""
	}
	return info.Path
})

// register records, when Run begins and twice a day, that this program reads the slot or stands by
// for it, and warns of other programs that have done so within a week. It is only for the warning:
// while it fails, for example without the column, there is none.
func (r *Relay) register(ctx context.Context) {
	if program() == "" || time.Now().Before(r.registered) {
		return
	}
	var others string
	found, err := r.db.row(ctx, `UPDATE {log} SET programs = programs || jsonb_build_object($2::text, clock_timestamp())
WHERE slot = $1::text RETURNING (SELECT COALESCE(string_agg(key, ' and ' ORDER BY key), '')
  FROM jsonb_each_text(programs) WHERE key <> $2::text AND value::timestamptz > clock_timestamp() - interval '7 days')`,
		[]any{r.cfg.Slot, program()}, &others)
	if err != nil || !found {
		r.registered = time.Now().Add(registerPause)
		return
	}
	r.registered = time.Now().Add(registerEvery)
	if others == "" || others == r.others {
		return
	}
	r.others = others
	r.log.WarnContext(ctx, "outbox: another program reads the same slot: each event is published by one of the two, "+
		"with its publisher; give one of them another slot and outbox", "program", program(), "other_program", others)
}
