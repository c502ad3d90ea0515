package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

func (a *app) migrateCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "migrate",
		Short: "Create, change, check and print the tables",
		Long: `migrate creates and changes the tables of ormoutbox, and prints their SQL for other tools.

--tables says which: outbox, inbox, keys (Idempotency-Key, results of commands), effects, or all.`,
	}, a.migrateUp(), a.migrateDown(), a.migrateStatus(), a.migrateValidate(), a.migrateGet())
}

func tablesFlag(c *cobra.Command, names *[]string) {
	c.Flags().StringSliceVar(names, "tables", []string{"outbox"}, "outbox, inbox, keys, effects, or all")
	complete(c, "tables", "outbox", "inbox", "keys", "effects", "all")
}

// migrationState is a migration as `migrate status` prints it.
type migrationState struct {
	Tables    string     `json:"tables"`
	Version   int        `json:"version"`
	Name      string     `json:"name"`
	Applied   bool       `json:"applied"`
	AppliedAt *time.Time `json:"applied_at,omitempty"`

	up, down string // its SQL
}

// migrationChange is what `migrate up` and `migrate down` print.
type migrationChange struct {
	DryRun     bool             `json:"dry_run"`
	Migrations []migrationState `json:"migrations"`
}

// states are the migrations of a kind, compared with its table of versions.
type states struct {
	all      []migrationState
	recorded bool   // there is a table of versions
	newer    string // in words, if the tables have a newer version than this program; else empty
}

func (db *database) states(ctx context.Context, k kind, p place) (s states, err error) {
	migrations, err := k.migrations(p)
	if err != nil {
		return s, usage("%w", err)
	}
	list, err := db.appliedOf(ctx, k, p)
	if err != nil {
		return s, err
	}
	for _, m := range migrations {
		one := migrationState{Tables: k.name, Version: m.Version, Name: m.Name, up: m.Up, down: m.Down}
		if i := slices.IndexFunc(list, func(v applied) bool { return v.version == m.Version }); i >= 0 {
			one.Applied, one.AppliedAt = true, &list[i].at
		}
		s.all = append(s.all, one)
	}
	newest, of := 0, migrations[len(migrations)-1].Version
	for _, v := range list {
		newest = max(newest, v.version)
	}
	if s.recorded = list != nil; newest > of {
		s.newer = fmt.Sprintf("the %s tables are of version %d, and this program knows %d", k.name, newest, of)
	}
	return s, nil
}

func (a *app) migrateUp() *cobra.Command {
	var names []string
	var dryRun bool
	c := &cobra.Command{
		Use:     "up",
		Short:   "Create the tables, or bring them up to date",
		Long:    `up applies the migrations that are missing. Any number of processes may run it at once.`,
		Example: "  outbox migrate up --tables outbox,inbox",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			chosen, err := a.kindsOf(names)
			if err != nil {
				return err
			}
			return a.withFile(c, true, !dryRun, func(ctx context.Context, db *database) error {
				return a.up(ctx, db, chosen, dryRun)
			})
		},
	}
	tablesFlag(c, &names)
	c.Flags().BoolVar(&dryRun, "dry-run", false, "print the SQL, and change nothing")
	return c
}

// up applies the migrations of the kinds that are not applied yet.
func (a *app) up(ctx context.Context, db *database, chosen []kind, dryRun bool) error {
	a.noteDatabase(db)
	if a.prefix != "" && !strings.HasSuffix(a.prefix, "_") {
		a.note("the prefix %q has no _ at its end: the tables are named %s and so on", a.prefix,
			a.prefix+chosen[0].table)
	}
	done := []migrationState{}
	for _, k := range chosen {
		p := a.placeOf(k, db.dialect)
		before, err := db.states(ctx, k, p)
		if err != nil {
			return err
		}
		pending := slices.DeleteFunc(before.all, func(m migrationState) bool { return m.Applied })
		if before.newer != "" {
			a.note("%s: nothing is applied", before.newer)
			continue
		}
		if dryRun {
			a.printSQL(pending, func(m migrationState) string { return m.up })
			done = append(done, pending...)
			continue
		}
		s, err := k.store(db.DB, p)
		if err != nil {
			return usage("%w", err)
		}
		if err := s.Migrate(ctx); err != nil {
			return err
		}
		after, err := db.states(ctx, k, p)
		if err != nil {
			return err
		}
		for _, m := range after.all {
			was := func(p migrationState) bool { return p.Version == m.Version }
			if m.Applied && slices.ContainsFunc(pending, was) {
				done = append(done, m)
			}
		}
	}
	if dryRun && !a.json {
		return nil
	}
	return a.print(migrationChange{dryRun, done}, func() {
		for _, m := range done {
			a.sayf("applied %s %04d_%s\n", m.Tables, m.Version, m.Name)
		}
		if len(done) == 0 {
			a.sayf("the tables are up to date\n")
		}
	})
}

// printSQL prints the SQL of migrations for people.
func (a *app) printSQL(all []migrationState, text func(migrationState) string) {
	for _, m := range all {
		if !a.json {
			a.sayf("-- %s %04d_%s\n%s\n", m.Tables, m.Version, m.Name, lines(text(m)))
		}
	}
}

func (a *app) migrateDown() *cobra.Command {
	var names []string
	var dryRun, yes bool
	var to int
	c := &cobra.Command{
		Use:   "down --to VERSION",
		Short: "Undo migrations down to a version; version 0 drops the tables",
		Long: `down undoes the migrations after version --to, which migrate up, Migrate or AutoCreate applied. Stop
every process that uses the tables first. Version 0 drops the tables. While undelivered events are
there, down needs --yes.`,
		Example: "  outbox migrate down --to 1",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			chosen, err := a.kindsOf(names)
			if err != nil {
				return err
			}
			if len(chosen) != 1 {
				return usage("down is for one kind of tables: name it with --tables")
			}
			if to < 0 {
				return usage("--to VERSION is missing: 0 drops the tables")
			}
			return a.withDatabase(c, func(ctx context.Context, db *database) error {
				return a.down(ctx, db, chosen[0], to, dryRun, yes)
			})
		},
	}
	tablesFlag(c, &names)
	c.Flags().IntVar(&to, "to", -1, "the version that stays; 0: none, the tables are dropped")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "print the SQL, and change nothing")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask, and ignore undelivered events")
	return c
}

// down undoes the migrations of a kind after a version.
func (a *app) down(ctx context.Context, db *database, k kind, to int, dryRun, yes bool) error {
	p := a.placeOf(k, db.dialect)
	states, err := db.states(ctx, k, p)
	if err != nil {
		return err
	}
	if !states.recorded {
		return exit(ExitFailed, "there is no table %s%s: undo the migrations with the tool that applied them",
			p.Prefix, k.versions)
	}
	if newest := states.all[len(states.all)-1].Version; to > newest {
		return usage("--to %d: this program knows the versions 0 to %d", to, newest)
	}
	if states.newer != "" {
		return refused("%s: nothing is undone; use the program of that version", states.newer)
	}
	undone := []migrationState{}
	for _, m := range slices.Backward(states.all) {
		if m.Version > to && m.Applied {
			m.Applied, m.AppliedAt = false, nil
			undone = append(undone, m)
		}
	}
	if dryRun {
		return a.print(migrationChange{dryRun, undone}, func() {
			a.printSQL(undone, func(m migrationState) string { return m.down })
		})
	}
	if len(undone) > 0 {
		if err := a.mayUndo(ctx, db, k, p, undone, yes); err != nil {
			return err
		}
	}
	for i, m := range undone {
		if err := db.revert(ctx, k, p, m); err != nil {
			if i > 0 {
				return exit(ExitPartial, "%d of %d migrations are undone: %w", i, len(undone), err)
			}
			return err
		}
	}
	return a.print(migrationChange{dryRun, undone}, func() {
		for _, m := range undone {
			a.sayf("undone %s %04d_%s\n", m.Tables, m.Version, m.Name)
		}
		if len(undone) == 0 {
			a.sayf("nothing to undo: the tables are of version %d or older\n", to)
		}
	})
}

// mayUndo describes the consequences of a down, and asks.
func (a *app) mayUndo(ctx context.Context, db *database, k kind, p place, undo []migrationState, yes bool) error {
	what := fmt.Sprintf("%d migrations of the %s tables in %s are undone", len(undo), k.name, db.name)
	if undo[len(undo)-1].Version == 1 {
		what += ", and their tables are dropped with all data"
	}
	a.note("%s", what)
	if k.name == "outbox" {
		repo, err := sqloutbox.New(db.DB, sqloutbox.Config{Dialect: p.Dialect, Schema: p.Schema, Prefix: p.Prefix})
		if err != nil {
			return err
		}
		b, err := repo.Backlog(ctx, 100_000)
		if err != nil && !yes {
			return fmt.Errorf("undelivered events cannot be counted (--yes goes on without): %w", err)
		}
		if n := b.Pending + b.Dead; n > 0 {
			least := ""
			if b.More {
				least = "at least "
			}
			a.note("%s%d events are not delivered: %d pending, %d dead", least, n, b.Pending, b.Dead)
			if !yes {
				return refused("there are undelivered events, so nothing was done: deliver or discard them, or " +
					"repeat the command with --yes")
			}
		}
	}
	return a.confirm(ctx, who{yes: yes}, tables{k, p, db}, "undo "+many(len(undo), "migration"))
}

// tableState is a kind of tables.
type tableState struct {
	Name       string           `json:"name"`
	OK         bool             `json:"ok"`
	Problem    string           `json:"problem,omitempty"`
	Recorded   bool             `json:"recorded"` // there is a table of versions
	Migrations []migrationState `json:"migrations"`
}

func (a *app) migrateStatus() *cobra.Command {
	var names []string
	c := &cobra.Command{
		Use:   "status",
		Short: "List the migrations, and whether they are applied",
		Long: `status lists the migrations that migrate up, Migrate or AutoCreate applied, and compares the tables
with the needs of this version. Its exit code is 0 whatever it finds: see migrate validate.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := a.tableStates(c, names)
			if err != nil {
				return err
			}
			return a.print(listing{"tables": all}, func() { a.printStates(all) })
		},
	}
	tablesFlag(c, &names)
	return c
}

func (a *app) migrateValidate() *cobra.Command {
	var names []string
	c := &cobra.Command{
		Use:   "validate",
		Short: "Compare the tables with what this version needs; exit code 3 if they differ",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := a.tableStates(c, names)
			if err != nil {
				return err
			}
			if err := a.print(listing{"tables": all}, func() { a.printProblems(all) }); err != nil {
				return err
			}
			if slices.ContainsFunc(all, func(s tableState) bool { return !s.OK }) {
				return exit(ExitUnhealthy, "the tables are not those of this version")
			}
			return nil
		},
	}
	tablesFlag(c, &names)
	return c
}

// tableStates looks at the tables of all chosen kinds.
func (a *app) tableStates(c *cobra.Command, names []string) (all []tableState, err error) {
	chosen, err := a.kindsOf(names)
	if err != nil {
		return nil, err
	}
	err = a.withDatabase(c, func(ctx context.Context, db *database) error {
		a.noteDatabase(db)
		for _, k := range chosen {
			p := a.placeOf(k, db.dialect)
			s := tableState{Name: k.name, OK: true}
			states, err := db.states(ctx, k, p)
			if err != nil {
				return err
			}
			s.Migrations, s.Recorded = states.all, states.recorded
			on, err := k.store(db.DB, p)
			if err != nil {
				return err
			}
			if err := on.Check(ctx); err != nil {
				s.OK, s.Problem = false, withoutPackages(withoutAdvice(err.Error()))
			}
			all = append(all, s)
		}
		return nil
	})
	return all, err
}

func (a *app) printStates(all []tableState) {
	t := newTable("TABLES|VERSION|NAME|APPLIED")
	for _, s := range all {
		for _, m := range s.Migrations {
			when := a.paint(yellow, "no")
			switch {
			case m.AppliedAt != nil:
				when = a.paint("", moment(*m.AppliedAt))
			case !s.Recorded && s.OK:
				when = "by another tool"
			}
			t.add(m.Tables, strconv.Itoa(m.Version), m.Name, when)
		}
	}
	t.write(a.Out)
	a.sayf("\n")
	a.printProblems(all)
}

func (a *app) printProblems(all []tableState) {
	for _, s := range all {
		if s.OK {
			a.sayf("%s: %s\n", s.Name, a.paint(green, "the tables are those of this version"))
			continue
		}
		a.sayf("%s: %s\n", s.Name, a.paint(red, s.Problem))
		a.note("`outbox migrate up%s%s` creates or upgrades the tables", kindNamed(s.Name).tablesFlag(), a.where())
	}
}
