package main

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// addPast writes a history of the last day, so that the charts have something to show at once. A
// real one is written by the relays.
func addPast(ctx context.Context, pool *sql.DB, now time.Time) error {
	end := now.Add(-core.HistorySlot)
	for at := now.Add(-24 * time.Hour).Truncate(core.HistorySlot); at.Before(end); at = at.Add(core.HistorySlot) {
		day := math.Sin(float64(at.Unix()%86400) / 86400 * 2 * math.Pi)
		noise := int(at.Unix() / 300 * 7919 % 101)
		published, refused := int(6000+2000*day)+3*noise, 0
		if noise > 85 {
			refused = noise - 84
		}
		for topic, counts := range map[string][2]int{"orders": {published, refused}, "mail": {published / 3, 0}} {
			if err := add(ctx, pool, at, topic, counts[0], counts[1], nil); err != nil {
				return err
			}
		}
		if err := add(ctx, pool, at, "", 0, 0, 10+noise/4); err != nil {
			return err
		}
	}
	return nil
}

// add writes one row. Only the one without a topic knows what waited.
func add(ctx context.Context, pool *sql.DB, at time.Time, topic string, published, refused int, waiting any) error {
	var none any
	if waiting != nil {
		none = 0
	}
	_, err := pool.ExecContext(ctx, "INSERT INTO outbox_history (part, slot, topic, published, refused, died, "+
		"waiting, dead, "+
		"blocked_keys, oldest, more) VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
		part(at, topic), at.UnixMicro(), topic, published, refused, waiting, none, none, none, none)
	if err != nil {
		return fmt.Errorf("a past for the charts: %w", err)
	}
	return nil
}

// part is the key of a row of the history in SQLite.
func part(at time.Time, topic string) string {
	return fmt.Sprintf("%d:%s", at.UnixMicro()/core.HistorySlot.Microseconds(), topic)
}
