package main

import (
	"context"
	"fmt"
)

func runHistory(ctx context.Context, e *env, s *Section) error {
	events := min(20_000, e.opts.Events)
	rows := thousands(float64(e.opts.History))
	s.note("The drain of %s unordered events with an empty table around them, and with %s published rows in it.",
		thousands(float64(events)), rows)
	empty, err := newOutboxBacklogOf(ctx, e, "empty_", false, events)
	if err != nil {
		return err
	}
	full, err := newOutboxBacklogOf(ctx, e, "full_", false, events)
	if err != nil {
		return err
	}
	e.progress.show("history: preparing %s published rows", rows)
	if err := full.fill(ctx, e.opts.History); err != nil {
		return err
	}
	emptyName, fullName := "0 published rows", rows+" published rows"
	relays := []relay{
		{name: emptyName, seed: empty.seed, drain: empty.drain, check: empty.check},
		{name: fullName, seed: full.refill, drain: full.drain, check: full.check},
	}

	t := s.table("ormoutbox, default configuration",
		[]Column{{"events/s", Count}, {"÷ empty", Ratio}, {"CPU µs/event", Count}, {"WAL B/event", Count}}...)
	for _, r := range relays {
		t.row(r.name, e.opts.Rounds)
	}
	err = interleave(e.opts.Rounds, len(relays), func(round, i int) error {
		e.progress.show("history, round %d of %d: %s", round+1, e.opts.Rounds, relays[i].name)
		d, err := e.timeDrain(ctx, relays[i], events)
		if err != nil {
			return err
		}
		t.set(t.Rows[i], round, "events/s", d.rate())
		t.setUsage(t.Rows[i], round, "event", d.from, d.to, float64(d.finished))
		return nil
	})
	if err != nil {
		return err
	}
	t.divide("÷ empty", "events/s", func(*Row) *Row { return t.find(emptyName) })
	t.summarize()
	s.atLeast(t.value(fullName, "÷ empty"), 0.9, "with %s published rows at least 0.90 × the rate with none", rows)
	return nil
}

// fill puts n published rows into the table, with ids that are older than those of the backlog.
func (b *outboxBacklog) fill(ctx context.Context, n int) error {
	return b.e.exec(ctx,
		"TRUNCATE "+b.prefix+"event, "+b.prefix+"key",
		fmt.Sprintf(`INSERT INTO %sevent (id, event_id, event_type, topic, content_type, payload, status, claim_no,
  available_at, occurred_at, created_at, done_at)
SELECT id, id::text, '%s', '%s', 'application/json', '%s', 1, 1, at, at, at, at FROM (
  SELECT (lpad(to_hex(i), 12, '0') || '70008000000000000000')::uuid AS id,
    now() - interval '1 hour' + i * interval '1 ms' AS at
  FROM generate_series(1, %d) i) r`, b.prefix, benchType, benchTopic, newPayload(0), n),
		"VACUUM (ANALYZE) "+b.prefix+"event")
}

// refill replaces the backlog of the round before, and leaves the published rows around it.
func (b *outboxBacklog) refill(ctx context.Context) error {
	if err := b.e.exec(ctx,
		"DELETE FROM "+b.prefix+"event e USING "+b.prefix+"seed s WHERE e.id = s.id",
		"VACUUM "+b.prefix+"event"); err != nil {
		return err
	}
	return b.add(ctx)
}
