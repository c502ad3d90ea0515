package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/ormoutbox/ormoutbox/core"
)

// logSample is how many of the newest events are looked at for those of a reader of the log.
const logSample = 1000

// logEvents counts the newest events, and those of them that a reader of the log publishes.
type logEvents struct {
	ByLog int `json:"by_log"`
	Of    int `json:"of"`
}

// String says what is known about the events.
func (e logEvents) String() string {
	return fmt.Sprintf("%d of the newest %s are for a program that reads the log of the database, as walrelay and "+
		"Debezium do; which of them are published, these tables do not know", e.ByLog, many(e.Of, "event"))
}

// byLog returns nil if none of the newest events is for a reader of the log.
func (db *database) byLog(ctx context.Context, schema, prefix string) (*logEvents, error) {
	var e logEvents
	err := db.QueryRowContext(ctx, "SELECT COALESCE(SUM(CASE WHEN status = 1 AND claimed_by = '"+core.LogReader+
		"' THEN 1 ELSE 0 END), 0), COUNT(*) FROM (SELECT status, claimed_by FROM "+db.quote(schema, prefix+"event")+
		" ORDER BY id DESC LIMIT "+strconv.Itoa(logSample)+") newest").Scan(&e.ByLog, &e.Of)
	if err != nil || e.ByLog == 0 {
		return nil, err
	}
	return &e, nil
}

// slot is a logical replication slot of PostgreSQL.
type slot struct {
	name, status string // wal_status
	active       bool
	behind       int64     // bytes of log that its reader has not confirmed
	mark         *bookmark // nil if the slot is not one of walrelay
}

// bookmark is what pgxoutbox/walrelay knows about a slot of its own.
type bookmark struct {
	slot, node string
	repairing  bool
}

const (
	slotsGuide = "docs/debezium.md says how to repair it"
	relayGuide = "docs/walrelay.md"
	// byHand warns of a slot that begins later than the relay has confirmed: it would end the relay
	// with ErrSlotMoved.
	byHand = "do not make the slot by hand (" + relayGuide + ")"
	mends  = "start the relay that has this slot: it makes the slot again, and publishes what committed since its " +
		"last checkpoint from the table; "
)

// missing says that the slot of the bookmark is not there.
func (b bookmark) missing() finding {
	return finding{
		Check: "log", Level: levelFailure, Found: fmt.Sprintf("slot %s of walrelay is missing", b.slot),
		Cause: "no event that commits is sent, until its relay has made the slot again", Fix: mends + byHand,
	}
}

// judge says how a reader of the log does.
func (s slot) judge(maxBehind int64) finding {
	f := finding{Check: "log", Level: levelFailure}
	switch {
	case s.status == "lost":
		f.Found = fmt.Sprintf("slot %s is lost: the server has removed log that its reader has not read", s.name)
		f.Cause = "the events in that log are never sent"
		f.Fix = "make the slot again and replay the events since then: " + slotsGuide
		if s.mark != nil {
			f.Cause, f.Fix = "no event that commits is sent, until its relay has made the slot again", mends+byHand
		}
	case !s.active:
		f.Found = fmt.Sprintf("nobody reads slot %s, and the server keeps %s of log for it", s.name,
			mebibytes(s.behind))
		f.Cause = "no event is sent, and the log fills the disk, or is removed at max_slot_wal_keep_size"
		f.Fix = "start its reader (Debezium: look at the state of the connector and of its task); drop a slot that " +
			"nobody needs"
		if s.mark != nil {
			f.Fix = "start its relay, walrelay: it goes on where it stopped; drop the slot if nobody needs it (" +
				relayGuide + ")"
		}
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
		f.Found = fmt.Sprintf("slot %s was made again, and walrelay on %s publishes what it missed from the table",
			s.name, s.mark.node)
		f.Cause = "events are late until that is done"
		f.Fix = "wait"
	case s.mark != nil:
		return fine("log", fmt.Sprintf("slot %s is read by walrelay on %s, and %s of log behind", s.name, s.mark.node,
			mebibytes(s.behind)))
	default:
		return fine("log", fmt.Sprintf("slot %s is read, and %s of log behind", s.name, mebibytes(s.behind)))
	}
	return f
}

func mebibytes(n int64) string { return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB" }

// publicationsOf counts the publications with the inserts of the table, or of all its partitions. A
// publication stays with a table that was renamed, and so with a single partition, if the table of
// events became one.
const publicationsOf = `WITH published AS (
 SELECT p.pubname, (quote_ident(t.schemaname) || '.' || quote_ident(t.tablename))::regclass AS name
 FROM pg_catalog.pg_publication_tables t JOIN pg_catalog.pg_publication p ON p.pubname = t.pubname WHERE p.pubinsert
), parts AS (SELECT i.inhrelid::regclass AS name FROM pg_catalog.pg_inherits i WHERE i.inhparent = $1::regclass)
SELECT count(*) FROM pg_catalog.pg_publication p WHERE
 EXISTS (SELECT FROM published t WHERE t.pubname = p.pubname AND t.name = $1::regclass) OR
 EXISTS (SELECT FROM parts) AND NOT EXISTS (SELECT FROM parts WHERE
  NOT EXISTS (SELECT FROM published t WHERE t.pubname = p.pubname AND t.name = parts.name))`

const logicalSlots = `SELECT slot_name, COALESCE(wal_status, ''), active,
 COALESCE(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn), 0)::bigint
FROM pg_catalog.pg_replication_slots WHERE slot_type = 'logical' AND database = current_database() ORDER BY slot_name`

// log looks for a reader of the log, if the newest events are for one.
func (x *examination) log(ctx context.Context) (all []finding, err error) {
	events, err := x.db.byLog(ctx, x.schema, x.prefix)
	if events == nil || err != nil {
		return nil, err
	}
	all = append(all, fine("log", events.String()))
	if x.db.dialect != core.Postgres {
		return all, nil
	}
	table := x.db.quote(x.schema, x.prefix+"event")
	var publications int
	if err := x.db.QueryRowContext(ctx, publicationsOf, table).Scan(&publications); err != nil {
		return all, err
	}
	if publications == 0 {
		all = append(all, finding{
			Check: "log", Level: levelFailure, Found: "no publication has the inserts of " + table,
			Cause: "no program can read all events from the log; a publication of the table that now is one of its " +
				"partitions has the events of that partition alone",
			Fix: "make one (CREATE PUBLICATION), or ALTER PUBLICATION ... SET TABLE, as docs/debezium.md and " +
				relayGuide + " show; walrelay makes it with Create",
		})
	}
	bookmarks, err := x.bookmarks(ctx)
	if err != nil {
		return all, err
	}
	rows, err := x.db.QueryContext(ctx, logicalSlots)
	if err != nil {
		return all, err
	}
	defer rows.Close()
	slots, marks := 0, map[string]bookmark{}
	for _, b := range bookmarks {
		marks[b.slot] = b
	}
	for rows.Next() {
		var s slot
		if err := rows.Scan(&s.name, &s.status, &s.active, &s.behind); err != nil {
			return all, err
		}
		slots++
		if b, ok := marks[s.name]; ok {
			s.mark = &b
			delete(marks, s.name)
		}
		all = append(all, s.judge(x.maxBehind))
	}
	for _, b := range bookmarks {
		if _, missing := marks[b.slot]; missing {
			all = append(all, b.missing())
		}
	}
	if slots == 0 && len(bookmarks) == 0 {
		all = append(all, finding{
			Check: "log", Level: levelFailure, Found: "this database has no logical replication slot",
			Cause: "Debezium never sends the events that commit while there is no slot",
			Fix: "make the slot, and replay the events since then: " + slotsGuide + "; or start walrelay with " +
				"Create, which begins with the events that are in the table: " + relayGuide,
		})
	}
	return all, rows.Err()
}

// bookmarks returns the slots of walrelay, as far as there are any and their table may be read.
func (x *examination) bookmarks(ctx context.Context) (all []bookmark, err error) {
	table := x.db.quote(x.schema, x.prefix+"log")
	var there bool
	if err := x.db.QueryRowContext(ctx, "SELECT COALESCE(has_table_privilege(to_regclass($1::text), 'SELECT'), false)",
		table).Scan(&there); err != nil || !there {
		return nil, err
	}
	rows, err := x.db.QueryContext(ctx, "SELECT slot, COALESCE(node, '?'), repairing FROM "+table+" ORDER BY slot")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var b bookmark
		if err := rows.Scan(&b.slot, &b.node, &b.repairing); err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, rows.Err()
}
