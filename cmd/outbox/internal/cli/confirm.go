package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// confirm asks whether to do something to some tables, unless this is a dry run. The question names
// their place: a variable of the shell may name another database, schema or prefix than the person
// has in mind. Without a person at the terminal nobody can be asked, and the command is refused.
func (a *app) confirm(ctx context.Context, w who, of tables, action string) error {
	if w.yes || w.dryRun {
		return nil
	}
	question := action + " in " + of.where(ctx) + "?"
	if !a.Terminal {
		return refused("nobody can be asked here, so nothing was done: %s Repeat the command with --yes", question)
	}
	_, _ = fmt.Fprintf(a.Err, "%s [y/N] ", shown(question))
	answer, err := a.answers.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return refused("not confirmed, so nothing was done")
}

// tables are the tables of a kind in a database.
type tables struct {
	kind
	place
	db *database
}

// tables returns the tables of a kind that the flags of the command name.
func (a *app) tables(db *database, kind string) tables {
	k := kindNamed(kind)
	return tables{k, a.placeOf(k, db.dialect), db}
}

// where has their schema and prefix, and their database without its password.
func (t tables) where(ctx context.Context) string {
	schema := t.Schema
	if schema == "" && t.Dialect == core.Postgres { // search_path decides
		err := t.db.QueryRowContext(ctx, "SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n "+
			"ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1::text)",
			t.db.quote("", t.Prefix+t.table)).Scan(&schema)
		if err != nil {
			schema = "" // the command says what is wrong
		}
	}
	if schema != "" {
		schema += "."
	}
	group := t.table[:strings.LastIndexByte(t.table, '_')+1] // outbox_event has its own in its prefix
	return schema + t.Prefix + group + "* at " + t.db.name
}
