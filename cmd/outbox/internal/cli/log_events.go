package cli

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// Progress of an event for a program that reads the log of the database. The status of its row is
// done from the beginning.
const (
	logPublished   = "published"   // walrelay has written down that it is past the event
	logUnconfirmed = "unconfirmed" // walrelay has not, so far
	logUnknown     = "unknown"     // another program reads the log, and the tables have nothing from it
)

// inTheLog is the status of an event for people, until it is known to be published.
const inTheLog = "in the log"

// logState is the state of the publication of an event. The zero value is for an event of a relay
// that polls.
type logState struct {
	// Log is published, unconfirmed or unknown. Empty: no reader of the log publishes the event.
	Log string `json:"log,omitempty"`
	// AsOf is when walrelay was as far as it has written down. Nil: it has written down nothing.
	AsOf *time.Time `json:"log_as_of,omitempty"`

	slot string // from which it was published
}

// status is the status of an event for people.
func (s logState) status(stored ops.Status) string {
	if s.Log == "" || s.Log == logPublished {
		return stored.String()
	}
	return inTheLog
}

// words describe the state.
func (s logState) words() string {
	switch s.Log {
	case logPublished:
		return "walrelay has published it, from slot " + s.slot
	case logUnconfirmed:
		return "walrelay has not confirmed it yet" + asOf(s.AsOf)
	case logUnknown:
		return "whether the reader of the log has published it, these tables do not know"
	}
	return ""
}

// asOf describes the time of a position of walrelay.
func asOf(t *time.Time) string {
	if t == nil {
		return ""
	}
	return ", as of " + moment(*t)
}

// pastCheckpoint is true for a row e that walrelay has recorded as published, or open in the table:
// its transaction is before the checkpoint of a slot l. It reads xmin as pgxoutbox/walrelay does
// for a repair: in doubt, a transaction counts as later. During a repair a checkpoint proves
// nothing, nor does another server's.
const pastCheckpoint = `NOT l.repairing AND l.slot IN ({slots}) AND
 now.next - (((now.next & 4294967295) - e.xmin::text::bigint) & 4294967295) < l.checkpoint::text::numeric::bigint`

// notConfirmed is true for a row e of a reader of the log for which pastCheckpoint is not true.
const notConfirmed = doneByLog + " AND NOT EXISTS (SELECT FROM {log} l WHERE " + pastCheckpoint + ")"

// doneByLog is true for a row e that is left to a reader of the log, and is not open.
const doneByLog = "e.status = 1 AND e.claimed_by = '" + core.LogReader + "'"

const nextTransaction = "(SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next) now"

// logStates returns the states of events, in their order. It queries only if one of them is for a
// reader of the log.
func (db *database) logStates(ctx context.Context, schema, prefix string, events []ops.Event,
) (states []logState, err error) {
	states = make([]logState, len(events))
	var ids []string
	for i := range events {
		if events[i].ByLog() {
			states[i].Log = logUnknown
			ids = append(ids, events[i].ID.String())
		}
	}
	if len(ids) == 0 || db.pgx == nil {
		return states, nil
	}
	bookmarks, err := db.bookmarks(ctx, schema, prefix)
	if err != nil || len(bookmarks) == 0 {
		return states, err
	}
	published, err := db.publishedFrom(ctx, schema, prefix, bookmarks, ids)
	if err != nil {
		return states, err
	}
	at := writtenAt(bookmarks)
	for i := range events {
		if states[i].Log == "" {
			continue
		}
		states[i] = logState{Log: logUnconfirmed, AsOf: at}
		if slot, ok := published[events[i].ID]; ok {
			states[i] = logState{Log: logPublished, AsOf: at, slot: slot}
		}
	}
	return states, nil
}

// publishedFrom returns the slot of each of the events that walrelay has published, as far as it
// has written that down.
func (db *database) publishedFrom(ctx context.Context, schema, prefix string, bookmarks []bookmark, ids []string,
) (map[core.RowID]string, error) {
	query := db.logWords(schema, prefix, bookmarks, `SELECT e.id::text, min(l.slot)
FROM {log} l, {event} e, `+nextTransaction+`
WHERE e.id = ANY ($1::text::uuid[]) AND `+doneByLog+` AND `+pastCheckpoint+`
GROUP BY e.id`)
	published := map[core.RowID]string{}
	err := db.each(ctx, query, []any{"{" + strings.Join(ids, ",") + "}"}, func(rows *sql.Rows) error {
		var text, slot string
		if err := rows.Scan(&text, &slot); err != nil {
			return err
		}
		id, err := core.ParseRowID(text)
		published[id] = slot
		return err
	})
	return published, err
}

// noteUnconfirmed names the events of a replay that walrelay may not have published yet. A failure
// of the question is no failure of the command.
func (a *app) noteUnconfirmed(ctx context.Context, db *database, p ops.Plan) {
	if p.ByLog == 0 || db.pgx == nil {
		return
	}
	bookmarks, err := db.bookmarks(ctx, a.schema, a.prefixOf())
	if err != nil || len(bookmarks) == 0 {
		return
	}
	published, err := db.publishedFrom(ctx, a.schema, a.prefixOf(), bookmarks, converted(p.IDs, core.RowID.String))
	if n := p.ByLog - len(published); err == nil && n > 0 {
		a.note("walrelay has not confirmed %d of them yet%s: it publishes them, and a replay sends them twice, "+
			"perhaps before earlier events of their keys", n, asOf(writtenAt(bookmarks)))
	}
}

// logWords fills in the names of the tables, and of the slots that were read on this server.
func (db *database) logWords(schema, prefix string, bookmarks []bookmark, query string) string {
	names := []string{"NULL"}
	for _, b := range bookmarks {
		if !b.moved {
			names = append(names, "'"+strings.ReplaceAll(b.slot, "'", "''")+"'")
		}
	}
	return strings.NewReplacer("{log}", db.quote(schema, prefix+"log"), "{event}", db.quote(schema, prefix+"event"),
		"{slots}", strings.Join(names, ", ")).Replace(query)
}

// writtenAt is the time of walrelay's last recorded position. Nil: there are only positions of
// repairs, or of another server.
func writtenAt(bookmarks []bookmark) (at *time.Time) {
	for _, b := range bookmarks {
		if !b.repairing && !b.moved && (at == nil || b.checkpointAt.After(*at)) {
			at = &b.checkpointAt
		}
	}
	return at
}

// lateLog is for how long an event may be unconfirmed before a person gets a hint. walrelay writes
// its position down every ten seconds.
const lateLog = 30 * time.Second

// unconfirmedLog counts the newest events that walrelay has not confirmed.
type unconfirmedLog struct {
	N          int        `json:"n"`
	OldestSecs float64    `json:"oldest_seconds"` // since the oldest of them was inserted; 0 without one
	Topics     []string   `json:"topics"`         // of them
	AsOf       *time.Time `json:"as_of"`          // null: walrelay has written down nothing
}

// late reports whether the events wait for longer than walrelay needs.
func (u *unconfirmedLog) late() bool { return u != nil && u.N > 0 && seconds(u.OldestSecs) > lateLog }

// String describes how many are not confirmed.
func (u *unconfirmedLog) String() string {
	if u.N == 0 {
		return "walrelay has published all of them" + asOf(u.AsOf)
	}
	return fmt.Sprintf("walrelay has not confirmed %d of them yet%s; the oldest was inserted %s ago; their %s: %s", u.N,
		asOf(u.AsOf), age(seconds(u.OldestSecs)), plural(len(u.Topics), "destination"),
		short(strings.Join(u.Topics, ", ")))
}

// whereStopped is the hint for a destination that walrelay has stopped. Its events wait in the
// memory of the relay, and no table has them.
const whereStopped = "`outbox status` names each destination that a relay has stopped, and the error"

// whyLate are possible causes of a late walrelay.
const whyLate = "a destination of these events or of earlier ones may be stopped, paused or limited, or a " +
	"transaction is open for long"

// unconfirmed counts the newest events that walrelay has not confirmed. Nil: walrelay has no slot
// for the table, so nothing is known.
func (db *database) unconfirmed(ctx context.Context, schema, prefix string) (*unconfirmedLog, error) {
	if db.pgx == nil {
		return nil, nil
	}
	bookmarks, err := db.bookmarks(ctx, schema, prefix)
	if err != nil || len(bookmarks) == 0 {
		return nil, err
	}
	u := &unconfirmedLog{Topics: []string{}, AsOf: writtenAt(bookmarks)}
	query := db.logWords(schema, prefix, bookmarks, fmt.Sprintf(`SELECT e.topic, count(*),
 max(extract(epoch FROM clock_timestamp() - e.created_at))::float8
FROM (SELECT topic, status, claimed_by, created_at, xmin FROM {event} ORDER BY id DESC LIMIT %d) e, %s
WHERE %s GROUP BY e.topic`, logSample, nextTransaction, notConfirmed))
	err = db.each(ctx, query, nil, func(rows *sql.Rows) error {
		var topic string
		var n int
		var oldest float64
		if err := rows.Scan(&topic, &n, &oldest); err != nil {
			return err
		}
		u.N += n
		u.OldestSecs = max(u.OldestSecs, oldest)
		u.Topics = append(u.Topics, topic)
		return nil
	})
	slices.Sort(u.Topics)
	return u, err
}

// listedEvent is an event with the state of its publication if a reader of the log publishes it.
type listedEvent struct {
	ops.Event
	logState
}

// status is the event's status for people.
func (e listedEvent) status() string { return e.logState.status(e.Status) }

// listed adds to events the state of their publication if a reader of the log publishes them.
func (a *app) listed(ctx context.Context, db *database, events []ops.Event) ([]listedEvent, error) {
	states, err := db.logStates(ctx, a.schema, a.prefixOf(), events)
	if err != nil {
		return nil, err
	}
	all := make([]listedEvent, len(events))
	for i := range events {
		all[i] = listedEvent{events[i], states[i]}
	}
	return all, nil
}
