package crash

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"github.com/ormoutbox/ormoutbox/core"
)

// Truth has the committed events: one row for each event, written in the event's transaction, with
// the event's place among the events of its key. Only the lock that Publish takes protects the
// counter of these places.
type Truth struct {
	Events map[string]Fact
}

// Fact is one committed event.
type Fact struct {
	Key string // empty: unordered
	N   int64  // place in the key, from 1
}

// CreateTruth creates the business tables, with a counter for each key.
func CreateTruth(ctx context.Context, db *sql.DB, keys int) error {
	for _, q := range []string{
		"CREATE TABLE business_event (id VARCHAR(36) NOT NULL PRIMARY KEY, k VARCHAR(40) NOT NULL, n BIGINT NOT NULL)",
		"CREATE TABLE business_key (k VARCHAR(40) NOT NULL PRIMARY KEY, n BIGINT NOT NULL)",
	} {
		if _, err := db.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	for i := range keys {
		if _, err := db.ExecContext(ctx, fmt.Sprintf("INSERT INTO business_key (k, n) VALUES ('%s', 0)",
			key(i))); err != nil {
			return err
		}
	}
	return nil
}

func key(i int) string { return "key-" + strconv.Itoa(i) }

// writeFact stores the business data of an event that was given to Publish in the same transaction
// just before. Its place is right only because Publish holds the key.
func writeFact(ctx context.Context, tx core.Tx, e core.Event) error {
	var n int64
	k := ""
	if !e.Unordered {
		k = e.Key
		if _, err := tx.Exec(ctx, "UPDATE business_key SET n = n + 1 WHERE k = '"+k+"'"); err != nil {
			return err
		}
		var err error
		if n, err = readCount(ctx, tx, k); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO business_event (id, k, n) VALUES ('%s', '%s', %d)", e.ID, k,
		n))
	return err
}

func readCount(ctx context.Context, tx core.Tx, k string) (n int64, err error) {
	rows, err := tx.Query(ctx, "SELECT n FROM business_key WHERE k = '"+k+"'")
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&n); err != nil {
			return 0, err
		}
	}
	return n, rows.Err()
}

// ReadTruth reads the committed events.
func ReadTruth(ctx context.Context, db *sql.DB) (Truth, error) {
	t := Truth{Events: map[string]Fact{}}
	rows, err := db.QueryContext(ctx, "SELECT id, k, n FROM business_event")
	if err != nil {
		return t, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var f Fact
		if err := rows.Scan(&id, &f.Key, &f.N); err != nil {
			return t, err
		}
		t.Events[id] = f
	}
	return t, rows.Err()
}
