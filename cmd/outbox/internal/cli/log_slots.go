package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
)

// slot is a logical replication slot of PostgreSQL, or a missing slot of walrelay.
type slot struct {
	name, status string // wal_status
	invalid      string // why the server has invalidated it, from PostgreSQL 17 on
	missing      bool
	active       bool
	behind       int64         // bytes of log that its reader has not confirmed
	kept         int64         // bytes of log that the server keeps because of it
	safe         sql.NullInt64 // bytes until it may be lost; null: nothing bounds it
	confirmed    int64         // its position in the log
	mark         *bookmark     // nil if the slot is not walrelay's
	left         *leftover     // nil: the slot is there, or events wait for it
	failover     bool          // it follows to standbys
	blocked      string        // slots of synchronized_standby_slots that no standby uses
	standbys     []walrelay.Standby
}

// leftover is the bookmark of a slot that is missing, and for which no event waits: somebody has
// moved back to a relay that polls, or the slot was lost and no relay runs.
type leftover struct {
	events bool   // events that were read from the log are among the newest
	polled bool   // the newest event is for a relay that polls
	adopt  string // the statement that gives the former to the latter
}

// bookmark is the row of pgxoutbox/walrelay about its slot.
type bookmark struct {
	slot, node string
	repairing  bool
	confirmed  int64  // the slot is never further, unless somebody else has moved it
	table      string // table of the bookmarks, for SQL
	// checkpointAt is the time before which walrelay has published all that had committed.
	checkpointAt time.Time
	// moved: walrelay has read the slot on another server, of which this database is a copy. Its
	// transactions and positions mean nothing here.
	moved bool
}

const (
	slotsGuide = "docs/debezium.md says how to repair it"
	relayGuide = "docs/walrelay.md"
	// failoverGuide has the settings of failover slots.
	failoverGuide = "A failover of PostgreSQL in " + relayGuide
	// byHand warns of a slot that begins later than the relay has confirmed: it would end the relay
	// with ErrSlotMoved.
	byHand  = "do not make the slot by hand (" + relayGuide + ")"
	repairs = "start the relay that has this slot: it makes the slot again, and publishes what committed since its " +
		"last checkpoint from the table; "
	noneSent = "its relay sends no event that commits, until it has made the slot again"

	// maxLogBehind is how far a reader may be behind, if nothing else is asked for.
	maxLogBehind = 1 << 30
)

// judge returns the finding about a slot and its reader.
func (s slot) judge(maxBehind int64) finding {
	f := finding{Check: "log", Level: levelFailure}
	switch {
	case s.left != nil:
		return s.leftOver()
	case s.mark != nil && s.mark.moved && !s.active:
		f.Found = fmt.Sprintf("walrelay has read slot %s on another server: this database is a copy, or was restored",
			s.name)
		f.Cause = "its relay ends with an error, and no event is sent"
		f.Fix = "if the events are to be sent from here, start the relay once with --repair-slot always " +
			"(RepairAlways): it sends every event of the log that is in the table: " + relayGuide
	case s.missing:
		f.Found = fmt.Sprintf("slot %s of walrelay is missing", s.name)
		f.Cause, f.Fix = noneSent, repairs+byHand
		if s.mark != nil {
			f.Fix += "; if no relay has it any more, forget it: " + s.forget()
		}
	case s.status == "lost":
		f.Found = fmt.Sprintf("slot %s is lost: the server has removed log that its reader has not read", s.name)
		if s.invalid != "" {
			f.Found += ", for the reason " + s.invalid
		}
		f.Cause = "the events in that log are never sent"
		f.Fix = "make the slot again and replay the events since then: " + slotsGuide
		if s.mark != nil {
			f.Cause, f.Fix = noneSent, repairs+byHand
		}
	case !s.active && s.mark != nil && !s.mark.repairing && s.confirmed > s.mark.confirmed:
		f.Found = fmt.Sprintf("slot %s is further than walrelay has read: somebody else has read it, or has made it "+
			"again", s.name)
		f.Cause = "its relay ends with an error, and no event is sent"
		f.Fix = "find out who did it; if the relay is right to publish, start it once with --repair-slot always " +
			"(RepairAlways): " + relayGuide
		if s.failover {
			f.Fix = "if a standby has taken over, start the relay, which repairs this; if not, " + f.Fix
		}
	case !s.active:
		f.Found = fmt.Sprintf("nobody reads slot %s, and the server keeps %s of log for it", s.name, mebibytes(s.kept))
		f.Cause = "no event that is left to its reader is sent, and the log fills the disk, or is removed at " +
			"max_slot_wal_keep_size"
		f.Fix = "start its reader (Debezium: look at the state of the connector and of its task); drop a slot that " +
			"nobody needs"
		if s.mark != nil {
			f.Fix = "start its relay, walrelay (`outbox relay --slot " + s.name + "`, or a program of yours): it " +
				"goes on where it stopped; drop the slot if nobody needs it (" + relayGuide + ")"
		}
	case s.blocked != "":
		f.Found = fmt.Sprintf("the server holds back the events of slot %s: synchronized_standby_slots names %s, and "+
			"no standby uses that", s.name, s.blocked)
		f.Cause = "no event that commits is sent"
		f.Fix = "start the standby; or take the slot out of synchronized_standby_slots, and SELECT pg_reload_conf(): " +
			failoverGuide
	case s.safe.Valid && s.safe.Int64 < s.kept/2:
		f.Level = levelWarning
		f.Found = fmt.Sprintf("slot %s may be lost when %s more of log are written: the server keeps %s for it", s.name,
			mebibytes(max(s.safe.Int64, 0)), mebibytes(s.kept))
		f.Cause = "its reader is far behind, or a transaction is open for long"
		f.Fix = "look at the log of the reader and at the oldest transaction; raise max_slot_wal_keep_size to win " +
			"time: " + relayGuide
	case s.behind > maxBehind:
		f.Level = levelWarning
		f.Found = fmt.Sprintf("the reader of slot %s is %s of log behind", s.name, mebibytes(s.behind))
		f.Cause = "events are late; or its reader confirms nothing while the outbox is quiet"
		f.Fix = "look at the log of the reader, and whether it has a heartbeat: " + slotsGuide
		if s.mark != nil {
			f.Cause = "events are late"
			f.Fix = fmt.Sprintf("look at the log of the relay on %s, at what is paused, and at transactions that are "+
				"open for long: %s", s.mark.node, relayGuide)
		}
	case s.mark != nil && s.mark.repairing:
		f.Level = levelWarning
		f.Found = fmt.Sprintf("slot %s was made, and walrelay on %s publishes what came before it from the table",
			s.name, s.mark.node)
		f.Cause = "events are late until that is done"
		f.Fix = "wait; if it does not end, look at what is paused, and at the log of the relay, which names a " +
			"destination that is stopped: " + relayGuide
	case s.unready() != "":
		f.Level = levelWarning
		f.Found = fmt.Sprintf("slot %s cannot follow to %s", s.name, s.unready())
		f.Cause = "after a failover its reader finds no slot there"
		if s.mark != nil {
			f.Cause = "after a failover to it the relay makes the slot again, and events come twice"
		}
		f.Fix = "if the slot or the standby is new, wait two minutes; then compare the settings: " + failoverGuide
	case s.mark != nil:
		return fine("log", fmt.Sprintf("slot %s is read by walrelay on %s, and %s of log behind%s", s.name, s.mark.node,
			mebibytes(s.behind), s.follows()))
	default:
		return fine("log", fmt.Sprintf("slot %s is read, and %s of log behind%s", s.name, mebibytes(s.behind),
			s.follows()))
	}
	return f
}

// unready names the standbys that are not ready for the slot, and why.
func (s slot) unready() string {
	var all []string
	for _, b := range s.standbys {
		if b.Unready != "" {
			all = append(all, b.Host+": "+b.Unready)
		}
	}
	return strings.Join(all, "; ")
}

// follows says where a failover slot is ready.
func (s slot) follows() string {
	if len(s.standbys) == 0 {
		return ""
	}
	var all []string
	for _, b := range s.standbys {
		all = append(all, b.Host)
	}
	return ", and ready on " + strings.Join(all, " and ")
}

// leftOver is the finding about a missing slot for which no event waits.
func (s slot) leftOver() finding {
	f := finding{Check: "log", Level: levelOK}
	if !s.left.polled { // the relay may just be down
		f.Level = levelWarning
		f.Cause = "if services still publish with RelayedByLog, nobody sends what they publish from now on"
	}
	f.Found = fmt.Sprintf("slot %s of walrelay is gone, and none of the newest events is for it", s.name)
	over := "forget it: " + s.forget()
	if s.left.events {
		f.Found = fmt.Sprintf("slot %s of walrelay is gone, and walrelay had published all of the newest events that "+
			"are for it%s", s.name, asOf(&s.mark.checkpointAt))
		over = "leave these events to it, so that it sends their replays too: " + s.left.adopt + "; then forget the " +
			"slot: " + s.forget()
	}
	f.Fix = "if you have moved back to a relay that polls, " + over + "; if not, start the relay that has this slot: " +
		"it makes the slot again (" + relayGuide + ")"
	return f
}

// forget is the statement that forgets a slot that was dropped.
func (s slot) forget() string {
	return "DELETE FROM " + s.mark.table + " WHERE slot = '" + s.name + "'"
}

// findLeft finds the slots of walrelay that are missing and that no event waits for. While another
// one is there, events may leave by it, and a missing one was lost. e are the newest events; nil:
// none of them is for a reader of the log.
func (db *database) findLeft(ctx context.Context, schema, prefix string, slots []slot, e *logEvents) error {
	published := e == nil || e.Unconfirmed != nil && e.Unconfirmed.N == 0
	if !published || someRead(slots) || !slices.ContainsFunc(slots, func(s slot) bool { return s.missing }) {
		return nil
	}
	if waits, err := db.waitsForLog(ctx, schema, prefix, slots); waits || err != nil {
		return err
	}
	table := db.quote(schema, prefix+"event")
	left := leftover{
		events: e != nil,
		adopt:  "UPDATE " + table + " SET claimed_by = NULL WHERE claimed_by = '" + core.LogReader + "'",
	}
	err := db.QueryRowContext(ctx, "SELECT NOT (status = 1 AND COALESCE(claimed_by, '') = '"+core.LogReader+"') FROM "+
		table+" ORDER BY id DESC LIMIT 1").Scan(&left.polled)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	for i := range slots {
		if slots[i].missing && !slots[i].mark.repairing {
			slots[i].left = &left
		}
	}
	return nil
}

// someRead reports whether a slot belongs to walrelay and is not missing.
func someRead(slots []slot) bool {
	return slices.ContainsFunc(slots, func(s slot) bool { return s.mark != nil && !s.missing })
}

// waitsForLog reports whether an event that was inserted soon after the last checkpoint is not
// confirmed. The newest events need not show it: a relay that polls may have published many since.
func (db *database) waitsForLog(ctx context.Context, schema, prefix string, slots []slot) (waits bool, err error) {
	var bookmarks []bookmark
	for _, s := range slots {
		if s.mark != nil {
			bookmarks = append(bookmarks, *s.mark)
		}
	}
	var since core.RowID
	if at := writtenAt(bookmarks); at != nil {
		since = idAt(at.Add(-lookBack))
	}
	err = db.QueryRowContext(ctx, db.logWords(schema, prefix, bookmarks, fmt.Sprintf(`SELECT EXISTS (SELECT
FROM (SELECT status, claimed_by, xmin FROM {event} WHERE id >= $1::uuid ORDER BY id LIMIT %d) e, %s
WHERE %s)`, lookAhead, nextTransaction, notConfirmed)), since.String()).Scan(&waits)
	return waits, err
}

const (
	lookBack  = 10 * time.Minute // how long before a checkpoint a transaction that was open then may have begun
	lookAhead = 100_000          // events
)

// leftovers are the slots that no event waits for.
func leftovers(slots []slot) []slot {
	return slices.DeleteFunc(slices.Clone(slots), func(s slot) bool { return s.left == nil })
}

func mebibytes(n int64) string { return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB" }

const logicalSlots = `SELECT slot_name, COALESCE(wal_status, ''), active,
 COALESCE(pg_wal_lsn_diff(now.lsn, confirmed_flush_lsn), 0)::bigint,
 COALESCE(pg_wal_lsn_diff(now.lsn, restart_lsn), 0)::bigint, safe_wal_size,
 COALESCE(pg_wal_lsn_diff(confirmed_flush_lsn, '0/0'), 0)::bigint,
 COALESCE(to_jsonb(s) ->> 'invalidation_reason', ''), COALESCE((to_jsonb(s) ->> 'failover')::boolean, false),
 CASE WHEN to_jsonb(s) ->> 'failover' = 'true' AND NOT pg_is_in_recovery() THEN (SELECT
  COALESCE(string_agg(btrim(n), ', '), '') FROM unnest(string_to_array(
   NULLIF(current_setting('synchronized_standby_slots', true), ''), ',')) n
  WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_replication_slots p WHERE p.slot_name = btrim(n) AND p.active))
 ELSE '' END
FROM pg_catalog.pg_replication_slots s, (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn()
 ELSE pg_current_wal_lsn() END AS lsn) now
WHERE slot_type = 'logical' AND database = current_database() ORDER BY slot_name`

// slots returns the logical slots of a database on PostgreSQL, and missing slots of walrelay.
func (db *database) slots(ctx context.Context, schema, prefix string) (all []slot, err error) {
	err = db.each(ctx, logicalSlots, nil, func(rows *sql.Rows) error {
		all = append(all, slot{})
		s := &all[len(all)-1]
		return rows.Scan(&s.name, &s.status, &s.active, &s.behind, &s.kept, &s.safe, &s.confirmed, &s.invalid,
			&s.failover, &s.blocked)
	})
	if err != nil {
		return nil, err
	}
	// They are read after the slots: a bookmark is written before the slot goes on.
	bookmarks, err := db.bookmarks(ctx, schema, prefix)
	if err != nil {
		return nil, err
	}
	for i := range bookmarks {
		b := &bookmarks[i]
		at := slices.IndexFunc(all, func(s slot) bool { return s.name == b.slot })
		if at < 0 {
			all = append(all, slot{name: b.slot, missing: true, mark: b})
			continue
		}
		all[at].mark = b
	}
	return all, nil
}

// bookmarks returns the slots of walrelay, as far as there are any and their table may be read.
func (db *database) bookmarks(ctx context.Context, schema, prefix string) (all []bookmark, err error) {
	table := db.quote(schema, prefix+"log")
	var there bool
	if err := db.QueryRowContext(ctx, "SELECT COALESCE(has_table_privilege(to_regclass($1::text), 'SELECT'), false)",
		table).Scan(&there); err != nil || !there {
		return nil, err
	}
	here, err := db.system(ctx)
	if err != nil {
		return nil, err
	}
	query := "SELECT slot, COALESCE(node, '?'), repairing, pg_wal_lsn_diff(confirmed, '0/0')::bigint, " +
		db.micros("checkpoint_at") + ", COALESCE(system_id, '') FROM " + table + " ORDER BY slot"
	err = db.each(ctx, query, nil, func(rows *sql.Rows) error {
		b := bookmark{table: table}
		var at int64
		var system string
		if err := rows.Scan(&b.slot, &b.node, &b.repairing, &b.confirmed, &at, &system); err != nil {
			return err
		}
		b.checkpointAt = time.UnixMicro(at).UTC()
		b.moved = here != "" && system != "" && system != here
		all = append(all, b)
		return nil
	})
	return all, err
}

// system returns the identity of the server, as a reader of its log gets it. Empty: the role may
// not ask.
func (db *database) system(ctx context.Context) (id string, err error) {
	const function = "pg_catalog.pg_control_system()"
	var may bool
	if err := db.QueryRowContext(ctx, "SELECT has_function_privilege('"+function+"', 'EXECUTE')").
		Scan(&may); err != nil || !may {
		return "", err
	}
	var n int64
	err = db.QueryRowContext(ctx, "SELECT system_identifier FROM "+function).Scan(&n)
	return strconv.FormatUint(uint64(n), 10), err
}

// readers returns the slots by which events leave: walrelay's, or else, if e has counted newest
// events for a reader of the log, all logical slots. On other databases there are none.
func (db *database) readers(ctx context.Context, schema, prefix string, e *logEvents) ([]slot, error) {
	if db.pgx == nil {
		return nil, nil
	}
	all, err := db.slots(ctx, schema, prefix)
	if err == nil {
		err = db.findLeft(ctx, schema, prefix, all, e)
	}
	if err != nil {
		return nil, err
	}
	var ours []slot
	for _, s := range all {
		if s.mark != nil {
			ours = append(ours, s)
		}
	}
	if len(ours) == 0 && e != nil {
		return all, nil
	}
	return ours, nil
}

// slotRow is a slot as JSON.
type slotRow struct {
	Slot      string `json:"slot"`
	Active    bool   `json:"active"`
	Lost      bool   `json:"lost"` // or missing
	Behind    int64  `json:"behind_bytes"`
	Kept      int64  `json:"kept_bytes"`
	Safe      *int64 `json:"safe_bytes,omitempty"` // null: nothing bounds the slot
	Walrelay  string `json:"walrelay,omitempty"`   // the node that reads it, or read it last
	Repairing bool   `json:"repairing,omitempty"`
	LeftOver  bool   `json:"left_over,omitempty"` // it is missing, and no event waits for it

	found finding
}

func slotRowOf(s slot) slotRow {
	r := slotRow{
		Slot: s.name, Active: s.active, Lost: s.missing || s.status == "lost", Behind: s.behind, Kept: s.kept,
		LeftOver: s.left != nil, found: s.judge(maxLogBehind),
	}
	if s.safe.Valid {
		r.Safe = &s.safe.Int64
	}
	if s.mark != nil {
		r.Walrelay, r.Repairing = s.mark.node, s.mark.repairing
	}
	return r
}
