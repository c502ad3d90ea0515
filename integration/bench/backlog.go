package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// Figures of this section.
const (
	backlogEvents   = 20_000 // events of a drain at most
	backlogFinished = 4      // times as many events as the drain has have finished since the old snapshot
	backlogPatience = 5      // times -cap, for the large backlog
)

// Beginnings of the names of rows.
const (
	backlogOurs = "ormoutbox: "
	backlogHand = "hand-written loop: "
)

var backlogColumns = []Column{
	{"events/s", Count},
	{"÷ plain", Ratio},
	{"CPU µs/event", Count},
	{"WAL B/event", Count},
	{"finished", Percent},
}

func runBacklog(ctx context.Context, e *env, s *Section) error {
	events := min(backlogEvents, e.opts.Events)
	s.note("The plain drain is that of section drain with %s events. The large backlog has %s, and %d times as long a "+
		"limit. The old snapshot is a REPEATABLE READ transaction that is open since before %s other events of the "+
		"table finished: neither their rows nor their index entries can be removed. Section history has the drain "+
		"beside rows that were published long ago.", thousands(float64(events)),
		thousands(float64(e.opts.Backlog)), backlogPatience, thousands(float64(backlogFinished*events)))
	for _, ordered := range []bool{false, true} {
		if err := e.measureBacklogs(ctx, s, events, ordered); err != nil {
			return err
		}
	}
	return nil
}

func (e *env) measureBacklogs(ctx context.Context, s *Section, events int, ordered bool) (err error) {
	kind := "unordered"
	if ordered {
		kind = "ordered"
	}
	pool, err := e.openPGX(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	plain, err := newOutboxBacklogOf(ctx, e, kind+"_plain_", ordered, events)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plain.drop(ctx)) }()
	old, err := newPinnedBacklog(ctx, e, kind+"_pinned_", ordered, backlogFinished*events, events)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, old.unpin(), old.drop(ctx)) }()

	const plainName = "plain"
	largeName := thousands(float64(e.opts.Backlog)) + " events wait"
	oldName := "an old snapshot is open"
	hand := func(b *outboxBacklog) *handRelay {
		return &handRelay{pool: pool, table: b.prefix + "event", ordered: ordered, first: b.first}
	}
	relays := []relay{
		{name: backlogOurs + plainName, seed: plain.seed, drain: plain.drain, check: plain.check},
		{name: backlogOurs + oldName, seed: old.seed, drain: old.drain, check: old.check},
		{name: backlogHand + plainName, seed: plain.seed, drain: hand(plain).drain, check: plain.check},
		{name: backlogHand + oldName, seed: old.seed, drain: hand(old.outboxBacklog).drain, check: old.check},
	}
	if e.opts.selects(backlogOurs+largeName) || e.opts.selects(backlogHand+largeName) {
		large, err := newOutboxBacklogOf(ctx, e, kind+"_large_", ordered, e.opts.Backlog)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, large.drop(ctx)) }()
		for _, r := range []relay{
			{name: backlogOurs + largeName, drain: large.drain},
			{name: backlogHand + largeName, drain: hand(large).drain},
		} {
			r.seed, r.check, r.events, r.patience = large.seed, large.check, e.opts.Backlog, backlogPatience
			relays = append(relays, r)
		}
	}
	for i := range relays {
		relays[i].ordered = ordered
		if relays[i].events == 0 {
			relays[i].events = events
		}
	}
	t, err := e.measureRelays(ctx, s, strings.ToUpper(kind[:1])+kind[1:]+" events", relays, backlogColumns)
	if err != nil || t == nil {
		return err
	}
	t.divide("÷ plain", "events/s", func(r *Row) *Row {
		who, _, _ := strings.Cut(r.Name, ": ")
		return t.find(who + ": " + plainName)
	})
	t.summarize()
	s.atLeast(t.value(backlogOurs+largeName, "÷ plain"), 0.65, "%s: with %s waiting at least 0.65 × the plain drain",
		kind, thousands(float64(e.opts.Backlog)))
	s.atLeast(t.value(backlogOurs+oldName, "÷ plain"), 0.9, "%s: with an old snapshot at least 0.90 × the plain drain",
		kind)
	return nil
}

// numberColumn is the SQL for the number of a row's event.
const numberColumn = "convert_from(substring(payload FROM 7 FOR 8), 'UTF8')::integer"

// drop drops the tables, which makes room on the disk.
func (b *outboxBacklog) drop(ctx context.Context) error {
	return b.e.exec(ctx, fmt.Sprintf("DROP TABLE %[1]sseed, %[1]sseed_key, %[1]sevent, %[1]skey", b.prefix))
}

// pinnedBacklog is a backlog in a table that an old snapshot keeps from being cleaned.
type pinnedBacklog struct {
	*outboxBacklog

	snapshot *sql.Tx // nil if no snapshot is open
}

// newPinnedBacklog prepares a backlog of events after those that have finished.
func newPinnedBacklog(ctx context.Context, e *env, prefix string, ordered bool, finished, events int,
) (*pinnedBacklog, error) {
	b, err := newOutboxBacklogOf(ctx, e, prefix, ordered, finished+events)
	if err != nil {
		return nil, err
	}
	b.first, b.events = finished, events
	return &pinnedBacklog{outboxBacklog: b}, nil
}

// seed opens a snapshot, lets the first events finish, and adds the others.
func (b *pinnedBacklog) seed(ctx context.Context) error {
	if err := b.unpin(); err != nil {
		return err
	}
	event := b.prefix + "event"
	if err := b.e.exec(ctx, "TRUNCATE "+event+", "+b.prefix+"key",
		"INSERT INTO "+b.prefix+"key SELECT * FROM "+b.prefix+"seed_key"); err != nil {
		return err
	}
	var err error
	if b.snapshot, err = b.e.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead}); err != nil {
		return err
	}
	if _, err := b.snapshot.ExecContext(ctx, "SELECT count(*) FROM bench_order"); err != nil { // takes the snapshot
		return err
	}
	return b.e.exec(ctx,
		fmt.Sprintf("INSERT INTO %s SELECT * FROM %sseed WHERE %s < %d", event, b.prefix, numberColumn, b.first),
		"UPDATE "+event+" SET claim_no = 1, claimed_by = 'bench', lease_until = now() + interval '30 seconds'",
		"UPDATE "+event+" SET status = 1, done_at = now(), lease_until = NULL",
		fmt.Sprintf("INSERT INTO %s SELECT * FROM %sseed WHERE %s >= %d", event, b.prefix, numberColumn, b.first),
		"ANALYZE "+event+", "+b.prefix+"key")
}

// unpin ends the snapshot.
func (b *pinnedBacklog) unpin() error {
	if b.snapshot == nil {
		return nil
	}
	err := b.snapshot.Rollback()
	b.snapshot = nil
	return err
}
