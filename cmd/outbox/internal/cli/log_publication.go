package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// publicationOf reads what a publication has of a table: whether its inserts, its rows, under which
// condition, and which columns it lacks. Before PostgreSQL 15 there were neither conditions nor
// lists of columns.
const publicationOf = `SELECT p.pubinsert, t.tablename IS NOT NULL, COALESCE(to_jsonb(t) ->> 'rowfilter', ''),
 COALESCE((SELECT string_agg(a.attname, ', ' ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
  WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
  AND NOT COALESCE(to_jsonb(t) -> 'attnames' @> to_jsonb(a.attname::text), true)), '')
FROM pg_catalog.pg_publication p CROSS JOIN pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_publication_tables t
 ON t.pubname = p.pubname AND t.schemaname = n.nspname AND t.tablename = c.relname
WHERE p.pubname = $1 AND c.oid = $2::text::regclass`

// publications compares the publications of walrelay's slots with what it needs. A publication has
// the name of its slot, unless Config.Publication is set, which no table shows.
func (x *examination) publications(ctx context.Context, slots []slot) error {
	table := x.db.quote(x.schema, x.prefix+"event")
	for _, s := range slots {
		if s.mark == nil || s.left != nil {
			continue
		}
		lacks, err := x.db.publicationLacks(ctx, s.name, table)
		if err != nil {
			return err
		}
		if lacks != "" {
			name := quoted(s.name)
			x.fail(fmt.Sprintf("publication %s %s", s.name, lacks),
				"walrelay gets no event that commits meanwhile, or not all of it; if it runs, it publishes "+
					"them from the table when the publication is right again; those that committed while it did not "+
					"run have to be replayed",
				"ALTER PUBLICATION "+name+" SET TABLE "+table+" WHERE (claimed_by = '"+core.LogReader+
					"'); ALTER PUBLICATION "+name+" SET (publish = 'insert', publish_via_partition_root = true): "+
					relayGuide)
		}
	}
	return nil
}

// publicationLacks returns what a publication lacks for walrelay. Empty: nothing, or there is no
// publication of that name.
func (db *database) publicationLacks(ctx context.Context, name, table string) (string, error) {
	var inserts, listed bool
	var filter, columns string
	err := db.QueryRowContext(ctx, publicationOf, name, table).Scan(&inserts, &listed, &filter, &columns)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", nil
	case err != nil:
		return "", err
	case !listed:
		return "does not have the table " + table + " (with partitions it needs publish_via_partition_root)", nil
	case !inserts:
		return "does not have the inserts of " + table, nil
	case filter != "" && !strings.Contains(filter, "'"+core.LogReader+"'"):
		return "has only rows with " + short(filter) + ", and not those with claimed_by = '" + core.LogReader + "'", nil
	case columns != "":
		return "lacks columns of " + table + ": " + short(columns), nil
	}
	return "", nil
}

// quoted is a name of PostgreSQL in SQL.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
