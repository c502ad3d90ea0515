package cli

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// However many events are dead, status reads up to its limit, and a dry run as many as a plan has.
func TestBesideManyDead(t *testing.T) {
	migrated(t, func(w *world) {
		w.exec(manyDead[w.dialect])
		var c change
		w.json(&c, "discard", "--all", "--dry-run")
		if c.Events != ops.MaxPlan || !c.Capped {
			w.Errorf("dry run %+v, want the events of a plan, and that there are more", c)
		}
		w.require(w.run("redrive", "--all", "--dry-run"), ExitOK, "redrive: at least 10000 dead events",
			"at least 10000 events would be changed")

		db, err := connect(w.address)
		must(w, err)
		defer db.Close()
		db.SetMaxOpenConns(1) // databases count what a connection reads
		repo, err := sqloutbox.New(db.DB, sqloutbox.Config{Dialect: db.dialect})
		must(w, err)
		store, err := sqlops.NewStore(repo)
		must(w, err)
		_, _, err = store.ReadDestinations(w.Context(), 1) // the first call may ask for more
		must(w, err)
		before := w.rowsRead(db)
		topics, capped, err := store.ReadDestinations(w.Context(), 100)
		must(w, err)
		read := w.rowsRead(db) - before
		if !capped || len(topics) != 1 || topics[0].Dead != 100 || topics[0].Pending != 0 {
			w.Errorf("topics %+v, capped %t", topics, capped)
		}
		if read > 2000 {
			w.Errorf("%d rows were read for the first 100 of each kind", read)
		}
	})
}

// manyDead has 11,000 dead events, each in a key of its own.
var manyDead = map[core.Dialect]string{
	core.Postgres: "INSERT INTO outbox_event (id, event_id, event_type, topic, lane, key_seq, payload, status, " +
		"available_at, occurred_at, created_at) SELECT md5('i' || n)::uuid, 'x', 't', 'orders', " +
		"decode(md5('k' || n), 'hex'), 1, 'p', 3, now(), now(), now() FROM generate_series(1, 11000) n",
	core.MySQL: "INSERT INTO outbox_event (id, event_id, event_type, topic, lane, key_seq, payload, status, " +
		"available_at, occurred_at, created_at) SELECT UNHEX(MD5(CONCAT('i', seq))), 'x', 't', 'orders', " +
		"UNHEX(MD5(CONCAT('k', seq))), 1, 'p', 3, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) " +
		"FROM seq_1_to_11000",
	core.SQLite: "INSERT INTO outbox_event (id, event_id, event_type, topic, lane, key_seq, payload, status, " +
		"available_at, occurred_at, created_at) WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s " +
		"WHERE n < 11000) SELECT randomblob(16), 'x', 't', 'orders', randomblob(16), 1, x'70', 3, " +
		strings.Join([]string{sqliteNow, sqliteNow, sqliteNow}, ", ") + " FROM s",
}

// rowsRead is how many rows the database has read so far. SQLite does not tell.
func (w *world) rowsRead(db *database) (n int) {
	w.Helper()
	switch w.dialect {
	case core.Postgres:
		_, err := db.ExecContext(w.Context(), "SELECT pg_stat_force_next_flush()")
		must(w, err)
		must(w, db.QueryRowContext(w.Context(), "SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables) + "+
			"(SELECT sum(idx_tup_read) FROM pg_stat_user_indexes)").Scan(&n))
	case core.MySQL:
		must(w, db.each(w.Context(), "SHOW SESSION STATUS LIKE 'Handler_read%'", nil, func(rows *sql.Rows) error {
			var name string
			var one int
			err := rows.Scan(&name, &one)
			n += one
			return err
		}))
	}
	return n
}
