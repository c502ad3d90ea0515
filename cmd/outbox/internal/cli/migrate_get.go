package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core"
)

// file is a migration as another tool wants it.
type file struct {
	Name    string `json:"name"`
	Content string `json:"content"`
}

// format makes the files of a migration for a tool. Their names begin with a number.
type format func(number uint64, name string, m core.Migration) []file

// oneFile is the format with a file that has up, between the texts before and between, and down if
// between is not empty.
func oneFile(pattern, before, between string) format {
	return func(number uint64, name string, m core.Migration) []file {
		text := before + m.Up
		if between != "" {
			text += between + m.Down
		}
		return []file{{fmt.Sprintf(pattern, number, name), text}}
	}
}

// twoFiles is the format with a file for each direction.
func twoFiles(pattern string, edit func(sql string) string) format {
	return func(number uint64, name string, m core.Migration) []file {
		return []file{
			{fmt.Sprintf(pattern, number, name, "up"), edit(m.Up)},
			{fmt.Sprintf(pattern, number, name, "down"), edit(m.Down)},
		}
	}
}

// formats are the tools whose files `migrate get` writes.
var formats = map[string]format{
	"goose":          oneFile("%05d_%s.sql", "-- +goose Up\n", "\n-- +goose Down\n"),
	"dbmate":         oneFile("%05d_%s.sql", "-- migrate:up\n", "\n-- migrate:down\n"),
	"atlas":          oneFile("%05d_%s.sql", "", ""),
	"flyway":         oneFile("V%d__%s.sql", "", ""),
	"golang-migrate": twoFiles("%06d_%s.%s.sql", strings.Clone),
	"bun": twoFiles("%014d_%s.tx.%s.sql", func(sql string) string {
		return strings.Join(statements(sql), ";\n--bun:split\n") + ";\n"
	}),
}

var (
	formatNames = []string{"raw", "goose", "golang-migrate", "dbmate", "atlas", "flyway", "bun"}
	dialects    = map[string]core.Dialect{
		"postgres": core.Postgres, "mysql": core.MySQL, "mariadb": core.MySQL, "sqlite": core.SQLite,
	}
)

func (a *app) migrateGet() *cobra.Command {
	var names []string
	var format, dialect, dir string
	var down bool
	var above int
	var first uint64
	c := &cobra.Command{
		Use:   "get",
		Short: "Print the migrations as SQL, for this or another migration tool",
		Long: `get prints the migrations, or writes the files of another tool. With --dialect it needs no database. It
never replaces a different file. With Atlas, run "atlas migrate hash" afterwards.`,
		Example: "  outbox migrate get --format goose --dialect mysql --first 20261123120000 --dir migrations",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			chosen, err := a.kindsOf(names)
			if err != nil {
				return err
			}
			d, err := a.dialectFor(dialect)
			if err != nil {
				return err
			}
			make, known := formats[format]
			if !known && format != "raw" {
				return usage("--format %q: the formats are %s", format, strings.Join(formatNames, ", "))
			}
			if down && format != "raw" {
				return usage("--down is for --format raw: the files of tools that go down have both directions")
			}
			if above > 0 && len(chosen) > 1 {
				return usage("--above is for one kind of tables: name it with --tables")
			}
			files := []file{}
			for _, k := range chosen {
				all, err := k.migrations(a.placeOf(k, d))
				if err != nil {
					return usage("%w", err)
				}
				all = slices.DeleteFunc(all, func(m core.Migration) bool { return m.Version <= above })
				if down {
					slices.Reverse(all)
				}
				for _, m := range all {
					name := fmt.Sprintf("%s_%04d_%s", k.name, m.Version, m.Name)
					if format != "raw" {
						files = append(files, make(first, name, m)...)
						first++
						continue
					}
					text := m.Up
					if down {
						text = m.Down
					}
					files = append(files, file{name + ".sql", text})
				}
			}
			if dir != "" {
				if err := writeFiles(dir, files); err != nil {
					return err
				}
			}
			return a.print(listing{"files": files}, func() {
				for _, f := range files {
					switch {
					case dir != "":
						a.sayf("%s\n", filepath.Join(dir, f.Name))
					case format == "raw":
						a.sayf("-- %s\n%s\n", strings.TrimSuffix(f.Name, ".sql"), lines(f.Content))
					default:
						a.sayf("-- file: %s\n%s\n", f.Name, lines(f.Content))
					}
				}
			})
		},
	}
	tablesFlag(c, &names)
	f := c.Flags()
	f.StringVar(&format, "format", "raw", strings.Join(formatNames, ", "))
	f.StringVar(&dialect, "dialect", "", "postgres, mysql, mariadb or sqlite (default: of --database-url)")
	f.StringVar(&dir, "dir", "", "write files into this folder")
	f.BoolVar(&down, "down", false, "with --format raw: the SQL that undoes them")
	f.IntVar(&above, "above", 0, "only migrations after this version")
	f.Uint64Var(&first, "first", 1, "number of the first file")
	complete(c, "format", formatNames...)
	complete(c, "dialect", "postgres", "mysql", "mariadb", "sqlite")
	return c
}

// dialectFor returns the dialect of that name, or else by the database's address.
func (a *app) dialectFor(name string) (core.Dialect, error) {
	if name != "" {
		d, ok := dialects[name]
		if !ok {
			return "", usage("--dialect %q: the dialects are postgres, mysql, mariadb and sqlite", name)
		}
		return d, nil
	}
	address := a.address()
	if address == "" {
		return "", usage("--dialect is missing: postgres, mysql, mariadb or sqlite")
	}
	db, err := connect(address)
	if err != nil {
		return "", err
	}
	return db.dialect, db.Close()
}

// writeFiles writes all files, or none if one is there with another content.
func writeFiles(dir string, files []file) error {
	var problems []error
	for _, f := range files {
		old, err := os.ReadFile(filepath.Join(dir, f.Name))
		switch {
		case err == nil && string(old) != f.Content:
			problems = append(problems, fmt.Errorf("%s is there, and different", filepath.Join(dir, f.Name)))
		case err != nil && !errors.Is(err, os.ErrNotExist):
			problems = append(problems, err)
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("no file was written: %w", errors.Join(problems...))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), []byte(f.Content), 0o644); err != nil {
			return err
		}
	}
	return nil
}
