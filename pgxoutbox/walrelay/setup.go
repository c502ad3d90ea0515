package walrelay

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ormoutbox/ormoutbox/core"
)

// tableText makes the table of slots.
const tableText = `CREATE TABLE IF NOT EXISTS {log} (
    slot          text        COLLATE "C" NOT NULL PRIMARY KEY,
    epoch         bigint      NOT NULL,
    confirmed     pg_lsn      NOT NULL,
    spilled       pg_lsn      NOT NULL,
    checkpoint    xid8        NOT NULL,
    checkpoint_at timestamptz NOT NULL,
    system_id     text        COLLATE "C" NOT NULL,
    repairing     boolean     NOT NULL,
    node          text,
    since         timestamptz,
    programs      jsonb       NOT NULL DEFAULT '{}'
)`

// publicationText makes the publication. Neither marks of a relay nor the deletes of the cleanup
// are in it. With partitions, all are rows of the parent.
func (r *Relay) publicationText() string {
	return r.db.text("CREATE PUBLICATION " + pgx.Identifier{r.cfg.Publication}.Sanitize() +
		" FOR TABLE {event} WHERE (claimed_by = '" + core.LogReader + "')\n" +
		"    WITH (publish = 'insert', publish_via_partition_root = true)")
}

// Statements returns the statements that Setup runs, in their order, for people who run migrations
// themselves. The slot comes last: it begins where it is made.
func (r *Relay) Statements() []string {
	slot := "SELECT pg_create_logical_replication_slot('" + r.cfg.Slot + "', 'pgoutput')"
	if r.cfg.Failover {
		slot = "SELECT pg_create_logical_replication_slot('" + r.cfg.Slot + "', 'pgoutput', false, false, true)"
	}
	return []string{r.db.text(tableText), r.publicationText(), slot}
}

// Setup makes the table outbox_log, the publication and the slot, as far as they are missing. Call
// it before the first process with core.Config.RelayedByLog: events are read that commit from then
// on. The role of Pool must own the table of events, and the role of Replication have the attribute
// REPLICATION. Setup may be called again.
func (r *Relay) Setup(ctx context.Context) error {
	if err := r.checkServer(ctx); err != nil {
		return fmt.Errorf("walrelay: set up: %w", err)
	}
	if err := r.createTables(ctx); err != nil {
		return fmt.Errorf("walrelay: set up: %w", err)
	}
	s, err := r.db.slot(ctx, r.cfg.Slot)
	if err == nil && s == nil {
		if err = r.makeSlot(ctx); err == nil {
			s, err = r.db.slot(ctx, r.cfg.Slot)
		}
	}
	if err == nil && s != nil {
		err = r.checkSlot(ctx, s)
	}
	if err != nil {
		return fmt.Errorf("walrelay: set up: %w", err)
	}
	return nil
}

// makeSlot makes the slot, unless another process makes it at the same time.
func (r *Relay) makeSlot(ctx context.Context) error {
	conn, _, err := r.dial(ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	if _, _, err = r.createSlot(ctx, conn, "nothing"); sqlState(err) == stateExists {
		return nil
	}
	return err
}

// createTables makes the table and the publication.
func (r *Relay) createTables(ctx context.Context) error {
	for _, text := range r.Statements()[:2] {
		if _, err := r.db.exec(ctx, text); err != nil && sqlState(err) != stateExists {
			if sqlState(err) != stateDuplicate { // two processes make the same table at once
				return err
			}
		}
	}
	return r.checkPublication(ctx)
}

// checkTables looks for the table of slots and the publication, and makes them if it may.
func (r *Relay) checkTables(ctx context.Context) error {
	var there bool
	_, err := r.db.row(ctx, "SELECT to_regclass($1::text) IS NOT NULL", []any{r.db.table("log")}, &there)
	if err != nil {
		return err
	}
	err = errNoTable
	if there {
		err = r.checkPublication(ctx)
	}
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, errNoTable) && !errors.Is(err, errNoPublication):
		return err
	case r.cfg.Create:
		return r.createTables(ctx)
	case errors.Is(err, errNoTable):
		return fmt.Errorf("%w: table %s is missing: call Setup, or set Create", ErrNotSetUp, r.db.table("log"))
	}
	return fmt.Errorf("%w: publication %s is missing: call Setup, or set Create", ErrNotSetUp, r.cfg.Publication)
}

var (
	errNoTable       = errors.New("walrelay: no table")
	errNoPublication = errors.New("walrelay: no publication")
)

// checkPublication refuses a publication that lacks events, and stores the table's name in it.
func (r *Relay) checkPublication(ctx context.Context) (err error) {
	r.schema, r.name, err = r.publication(ctx)
	return err
}

// publication returns the table's name in the publication, and an error if the publication lacks
// events.
func (r *Relay) publication(ctx context.Context) (schema, name string, err error) {
	found, err := r.db.row(ctx, `SELECT n.nspname, c.relname FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1::text)`,
		[]any{r.db.table("event")}, &schema, &name)
	if err != nil {
		return "", "", err
	}
	if !found {
		return "", "", fmt.Errorf("%w: %s", core.ErrNoTables, r.db.table("event"))
	}
	var inserts, listed bool
	var filter string
	found, err = r.db.row(ctx, `SELECT p.pubinsert, t.tablename IS NOT NULL, COALESCE(t.rowfilter, '')
FROM pg_catalog.pg_publication p LEFT JOIN pg_catalog.pg_publication_tables t
  ON t.pubname = p.pubname AND t.schemaname = $2::text AND t.tablename = $3::text
WHERE p.pubname = $1::text`, []any{r.cfg.Publication, schema, name}, &inserts, &listed, &filter)
	switch {
	case err != nil:
		return "", "", err
	case !found:
		return "", "", errNoPublication
	case !inserts || !listed:
		return "", "", fmt.Errorf("%w: publication %s does not have the inserts of table %s (with partitions it needs "+
			"publish_via_partition_root): drop it and call Setup, or name another one", ErrSlotTaken, r.cfg.Publication,
			r.db.table("event"))
	case filter != "" && !strings.Contains(filter, "'"+core.LogReader+"'"):
		return "", "", fmt.Errorf("%w: publication %s has the condition %s, and not claimed_by = '%s'", ErrSlotTaken,
			r.cfg.Publication, filter, core.LogReader)
	}
	return schema, name, nil
}
