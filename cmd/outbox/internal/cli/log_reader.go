package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
)

// logSample is how many of the newest events byLog reads.
const logSample = 1000

// logEvents counts the newest events, and how many of them a reader of the log publishes.
type logEvents struct {
	ByLog int `json:"by_log"`
	Of    int `json:"of"`
	// Unconfirmed counts events that walrelay has not confirmed. Null: walrelay has no slot for the
	// table, and which of the events are published is not known.
	Unconfirmed *unconfirmedLog `json:"unconfirmed,omitempty"`

	newest time.Time // of events of a reader of the log
}

// String describes the events.
func (e logEvents) String() string {
	known := "which of them are published, these tables do not know"
	if e.Unconfirmed != nil {
		known = e.Unconfirmed.String()
	}
	return fmt.Sprintf("%d of the newest %s are for a program that reads the log of the database, as walrelay and "+
		"Debezium do; %s", e.ByLog, many(e.Of, "event"), known)
}

// byLog returns nil if none of the newest events is for a reader of the log.
func (db *database) byLog(ctx context.Context, schema, prefix string) (*logEvents, error) {
	var e logEvents
	var newest nullMicros
	const ours = "CASE WHEN status = 1 AND claimed_by = '" + core.LogReader + "' THEN "
	err := db.QueryRowContext(ctx, "SELECT COALESCE(SUM("+ours+"1 ELSE 0 END), 0), COUNT(*), MAX("+ours+
		db.micros("created_at")+" END) FROM (SELECT status, claimed_by, created_at FROM "+
		db.quote(schema, prefix+"event")+" ORDER BY id DESC LIMIT "+strconv.Itoa(logSample)+") newest").
		Scan(&e.ByLog, &e.Of, &newest)
	if err != nil || e.ByLog == 0 {
		return nil, err
	}
	e.newest = newest.Time
	if e.Unconfirmed, err = db.unconfirmed(ctx, schema, prefix); e.Unconfirmed != nil {
		e.ByLog = max(e.ByLog, e.Unconfirmed.N) // events that came between the two questions
	}
	return &e, err
}

// mayWaitInLog reports whether events may wait in the log of the database for its reader. After a
// move back to a relay that polls, that is so until they are published.
func (db *database) mayWaitInLog(ctx context.Context, schema, prefix string) (bool, error) {
	e, err := db.byLog(ctx, schema, prefix)
	if err != nil || e != nil && e.Unconfirmed != nil && e.Unconfirmed.N > 0 {
		return err == nil, err
	}
	if db.pgx != nil {
		slots, err := db.slots(ctx, schema, prefix)
		switch {
		case err != nil:
			return false, err
		case slices.ContainsFunc(slots, func(s slot) bool { return s.mark != nil }):
			return db.waitsForLog(ctx, schema, prefix, slots)
		case e != nil && len(slots) > 0: // what its reader has published is in no table
			return true, nil
		}
	}
	if e == nil {
		return false, nil
	}
	now, err := db.now(ctx)
	return now.Sub(e.newest) < lookBack, err
}

// log looks for a reader of the log. It reports parts that the role may not see, which status
// leaves out.
func (x *examination) log(ctx context.Context) (err error) {
	there := false
	if x.db.dialect == core.Postgres {
		if there, err = x.db.hasTable(ctx, x.schema, x.prefix+"log"); err == nil && there {
			_, err = x.db.ExecContext(ctx, "SELECT FROM "+x.db.quote(x.schema, x.prefix+"log")+" LIMIT 0")
		}
	}
	if err == nil {
		err = x.readers(ctx)
	}
	if err != nil || !there {
		return err
	}
	if id, err := x.db.system(ctx); id != "" || err != nil {
		return err
	}
	return &hiddenError{
		what: "whether this database is the one that walrelay has read", right: "EXECUTE on pg_control_system()",
		grant: "GRANT EXECUTE ON FUNCTION pg_catalog.pg_control_system() TO " + x.db.role(ctx),
	}
}

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

// readers looks for a reader of the log, if the newest events are for one.
func (x *examination) readers(ctx context.Context) error {
	events, err := x.db.byLog(ctx, x.schema, x.prefix)
	if err != nil {
		return err
	}
	if events != nil {
		x.fine(events.String())
	}
	if x.db.dialect != core.Postgres {
		return nil
	}
	slots, err := x.db.slots(ctx, x.schema, x.prefix)
	if err == nil {
		err = x.db.findLeft(ctx, x.schema, x.prefix, slots, events)
	}
	if err != nil {
		return err
	}
	for i := range slots {
		if s := &slots[i]; s.failover && x.db.pgx != nil {
			s.standbys = walrelay.Standbys(ctx, x.db.pgx, s.name)
		}
	}
	if events == nil { // only older events may wait, or future ones
		if someRead(slots) {
			return x.publications(ctx, slots)
		}
		for _, s := range slots {
			if s.missing && s.left == nil {
				x.all = append(x.all, s.judge(x.maxBehind))
			}
		}
		return nil
	}
	if left := leftovers(slots); len(left) > 0 { // nobody reads the log any more, and nobody has to
		x.all = converted(left, func(s slot) finding { return s.judge(x.maxBehind) })
		return nil
	}
	failed := func(s slot) bool { return s.judge(x.maxBehind).Level == levelFailure }
	if events.Unconfirmed.late() && !slices.ContainsFunc(slots, failed) { // otherwise that is why
		x.all = nil
		x.warn(events.String(), whyLate+"; these tables do not know which", whereStopped+": "+relayGuide)
	}
	table := x.db.quote(x.schema, x.prefix+"event")
	var publications int
	if err := x.db.QueryRowContext(ctx, publicationsOf, table).Scan(&publications); err != nil {
		return err
	}
	if publications == 0 { // whatever its name is
		x.fail("no publication has the inserts of "+table,
			"no program can read all events from the log; a publication of the table that now is one of its "+
				"partitions has the events of that partition alone",
			"make one (CREATE PUBLICATION), or ALTER PUBLICATION ... SET TABLE, as docs/debezium.md and "+
				relayGuide+" show; walrelay makes it with Create (`outbox relay --slot NAME --create-slot`)")
	}
	if err := x.publications(ctx, slots); err != nil {
		return err
	}
	var ours []string
	for _, s := range slots {
		x.all = append(x.all, s.judge(x.maxBehind))
		if s.mark != nil && !s.missing {
			ours = append(ours, s.name)
		}
	}
	if len(ours) > 1 {
		x.warn("walrelay has more than one slot for "+table+": "+strings.Join(ours, ", "),
			"each of them has all events, so every event is published more than once",
			"keep one: stop the relay of the other, then SELECT pg_drop_replication_slot('NAME') and DELETE "+
				"FROM "+x.db.quote(x.schema, x.prefix+"log")+" WHERE slot = 'NAME': "+relayGuide)
	}
	if len(slots) == 0 {
		x.fail("this database has no logical replication slot",
			"Debezium never sends the events that commit while there is no slot",
			"make the slot, and replay the events since then: "+slotsGuide+"; or start walrelay with "+
				"Create, which begins with the events that are in the table: "+relayGuide)
	}
	return nil
}
