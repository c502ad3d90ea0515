package cli

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
)

const renamed = ". A program that was renamed is forgotten after a week"

// names looks for two programs that share a name by mistake.
func (x *examination) names(ctx context.Context) error {
	looked := false
	for _, look := range []struct {
		table string
		find  func(context.Context) error
	}{
		{"inbox_program", x.sharedHandlers},
		{x.keysPrefix + "idempotency_program", x.sharedScopes},
		{x.prefix + "log", x.sharedSlots},
	} {
		there, err := x.db.hasTable(ctx, x.schema, look.table)
		if there {
			looked, err = true, look.find(ctx)
		}
		if err != nil {
			return err
		}
	}
	if x.redis != "" {
		looked = true
		if err := x.sharedPrefixes(ctx); err != nil {
			return err
		}
	}
	if looked {
		x.otherwise("each name is used by one program")
	}
	return nil
}

// sharedHandlers finds the handlers of consumers of the inbox.
func (x *examination) sharedHandlers(ctx context.Context) error {
	store, err := sqlinbox.New(x.db.DB, sqlinbox.Config{Dialect: x.db.dialect, Schema: x.schema})
	if err != nil {
		return err
	}
	shared, err := store.Shared(ctx)
	if err != nil {
		return err
	}
	for n := 0; n < len(shared); {
		first := shared[n]
		var programs []string
		for ; n < len(shared) && shared[n].Consumer == first.Consumer && shared[n].Handler == first.Handler; n++ {
			programs = append(programs, shared[n].Program+" (topic "+shared[n].Topic+")")
		}
		x.warn(fmt.Sprintf("handler %s of consumer %s is served by %s", first.Handler, first.Consumer,
			strings.Join(programs, " and ")),
			"two services chose one name: each event is processed by one of them, and is a duplicate to the other",
			"give one of them another consumer name; it has processed nothing under that name yet"+renamed)
	}
	return nil
}

// sharedScopes finds the endpoints and the types of commands whose keys are in one table.
func (x *examination) sharedScopes(ctx context.Context) error {
	store, err := sqlonce.New(x.db.DB, sqlonce.Config{Dialect: x.db.dialect, Schema: x.schema, Prefix: x.keysPrefix})
	if err != nil {
		return err
	}
	shared, err := store.Shared(ctx)
	if err != nil {
		return err
	}
	for _, scope := range slices.Sorted(maps.Keys(shared)) {
		x.warn("the keys of "+scope+" are used by "+strings.Join(shared[scope], " and "),
			"two services have one endpoint or type of commands, and one table: under the same key, each gets "+
				"the result of the other",
			"give one of them a table with another prefix, or another type of commands"+renamed)
	}
	return nil
}

// sharedSlots finds the slots of walrelay. Tables of earlier versions have no programs.
func (x *examination) sharedSlots(ctx context.Context) error {
	if x.db.dialect != core.Postgres {
		return nil
	}
	query := `SELECT l.slot, string_agg(p.key, ' and ' ORDER BY p.key)
FROM ` + x.db.quote(x.schema, x.prefix+"log") + ` l, jsonb_each_text(to_jsonb(l) -> 'programs') p
WHERE p.value::timestamptz > clock_timestamp() - interval '7 days' GROUP BY l.slot HAVING count(*) > 1 ORDER BY l.slot`
	return x.db.each(ctx, query, nil, func(rows *sql.Rows) error {
		var slot, programs string
		if err := rows.Scan(&slot, &programs); err != nil {
			return err
		}
		x.warn("slot "+slot+" of walrelay is read by "+programs,
			"two services chose one slot: each event is published by one of them, with its publisher",
			"give one of them another slot and outbox, or run one program only"+renamed)
		return nil
	})
}
