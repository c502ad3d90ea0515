package cli

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

// The tables are made, looked at and dropped again.
func TestMigrate(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		if w.dialect == core.SQLite {
			w.require(w.run("migrate", "status"), ExitFailed, "outbox migrate up")
		} else {
			if before := w.ok("migrate", "status"); !strings.Contains(oneLine(before), " outbox 1 init no ") {
				w.Errorf("before: %s", before)
			}
			w.require(w.run("migrate", "validate"), ExitUnhealthy, "outbox_event")
		}
		if dry := w.ok("migrate", "up", "--tables", "all", "--dry-run"); !strings.Contains(dry, "CREATE TABLE") {
			w.Errorf("the dry run printed %s", dry)
		}
		if w.dialect == core.SQLite {
			w.require(w.run("migrate", "status"), ExitFailed, "there is no sqlite") // still
		}
		if up := w.ok("migrate", "up"); !strings.HasPrefix(up, "applied outbox 0001_init\n") {
			w.Errorf("up printed %s", up)
		}
		const others = "inbox,keys,effects"
		w.golden("migrate-up.txt", w.ok("migrate", "up", "--tables", others))
		w.golden("migrate-up-again.txt", w.ok("migrate", "up", "--tables", "all"))
		w.golden("migrate-status.txt", w.ok("migrate", "status", "--tables", others))
		w.golden("migrate-status.json", w.ok("migrate", "status", "--tables", others, "--json"))
		w.golden("migrate-validate.txt", w.ok("migrate", "validate", "--tables", "all"))

		w.require(w.run("migrate", "down", "--to", "1", "--yes"), ExitOK, "nothing to undo")
		var undone []migrationState
		for _, k := range kinds {
			code := w.list(&undone, "migrations", "migrate", "down", "--to", "0", "--yes", "--tables", k.name)
			if code != ExitOK || len(undone) == 0 || undone[len(undone)-1].Version != 1 {
				w.Errorf("down of %s: exit code %d, %+v", k.name, code, undone)
			}
			w.require(w.run("migrate", "validate", "--tables", k.name), ExitUnhealthy)
		}
	})
}

// oneLine is a table with single blanks, whatever its widths are.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// Undelivered events are not dropped by mistake.
func TestMigrateDownRefuses(t *testing.T) {
	migrated(t, func(w *world) {
		w.require(w.run("migrate", "down", "--to", "0"), ExitRefused, "--yes")
		w.require(w.answer("n\n", "migrate", "down", "--to", "0"), ExitRefused, "dropped with all data",
			"undo 1 migration in ", "[y/N]")
		w.require(w.answer("", "migrate", "down", "--to", "0"), ExitRefused)
		w.require(w.run("migrate", "down"), ExitUsage, "--to")
		w.publish(
			core.Event{Type: "order.placed", Topic: "orders"},
			core.Event{Type: "order.placed", Topic: "orders", Key: "1"},
		)
		w.require(w.answer("y\n", "migrate", "down", "--to", "0"), ExitRefused, "2 events are not delivered", "--yes")
		w.ok("migrate", "validate") // the tables are still there
		w.require(w.run("migrate", "down", "--to", "0", "--yes"), ExitOK)
		w.ok("migrate", "up")
		w.require(w.answer("yes\n", "migrate", "down", "--to", "0"), ExitOK, "undone outbox 0001_init")
	})
}

// Another tool made the tables: there is no table of versions.
func TestMigrateOfAnotherTool(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		all, err := kinds[0].migrations(place{Dialect: w.dialect, Prefix: kinds[0].prefix})
		must(w, err)
		db := w.open()
		db.SetMaxOpenConns(1)
		for _, m := range all {
			for _, stmt := range statements(m.Up) {
				if _, err := db.ExecContext(w.Context(), stmt); err != nil {
					w.Fatalf("%s: %v", stmt, err)
				}
			}
		}
		w.ok("migrate", "validate")
		if status := w.ok("migrate", "status"); !strings.Contains(oneLine(status), " outbox 1 init by another tool ") {
			w.Errorf("status printed %s", status)
		}
		w.require(w.run("migrate", "down", "--to", "0", "--yes"), ExitFailed, "the tool that applied them")
	})
}

// Tables have a prefix and a schema of their own.
func TestMigrateElsewhere(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		args := []string{"--prefix", "shop_"}
		if w.dialect == core.Postgres {
			args = append(args, "--schema", "Sales")
		}
		w.ok(append(args, "migrate", "up")...)
		w.ok(append(args, "migrate", "validate")...)
		w.require(w.run(append(args, "migrate", "down", "--to", "0", "--yes")...), ExitOK, "0001_init")
		w.require(w.run("migrate", "up", "--prefix", `x"; DROP`), ExitUsage, "outbox: --prefix ")
		w.require(w.run("migrate", "up", "--prefix", "x_", "--tables", "all"), ExitUsage, "--prefix")
		w.require(w.run("migrate", "up", "--tables", "orders"), ExitUsage, `"orders"`)
	})
}

func TestMigrateGet(t *testing.T) {
	t.Parallel()
	w := &world{T: t}
	if raw := w.ok("migrate", "get", "--dialect", "mariadb"); !strings.Contains(raw, "ENGINE = InnoDB") {
		t.Errorf("raw: %s", raw)
	}
	if down := w.ok("migrate", "get", "--dialect", "postgres", "--down"); !strings.Contains(down, "DROP TABLE") {
		t.Errorf("down: %s", down)
	}
	for format, want := range map[string][]string{
		"raw":            {"outbox_0001_init.sql", "inbox_0001_init.sql"},
		"goose":          {"00007_outbox_0001_init.sql", "00008_inbox_0001_init.sql"},
		"dbmate":         {"00007_outbox_0001_init.sql", "00008_inbox_0001_init.sql"},
		"atlas":          {"00007_outbox_0001_init.sql", "00008_inbox_0001_init.sql"},
		"flyway":         {"V7__outbox_0001_init.sql", "V8__inbox_0001_init.sql"},
		"golang-migrate": {"000007_outbox_0001_init.up.sql", "000007_outbox_0001_init.down.sql"},
		"bun":            {"00000000000007_outbox_0001_init.tx.up.sql", "00000000000007_outbox_0001_init.tx.down.sql"},
	} {
		var files []file
		dir := t.TempDir()
		args := []string{
			"migrate", "get", "--dialect", "sqlite", "--format", format, "--first", "7", "--dir", dir,
			"--tables", "outbox,inbox",
		}
		w.list(&files, "files", args...)
		for i, name := range want {
			equal(t, files[i].Name, name, "%s", format)
			if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != files[i].Content {
				t.Errorf("%s: %v, %s", format, err, text)
			}
		}
		w.ok(args...) // the same files once more
		must(t, os.WriteFile(filepath.Join(dir, want[1]), []byte("mine"), 0o600))
		w.require(w.run(args...), ExitFailed, "different", want[1])
		w.list(&files, "files", "migrate", "get", "--dialect", "sqlite", "--format", format, "--above", "1")
		if len(files) != 0 {
			t.Errorf("%s --above 1: %+v", format, files)
		}
	}
	w.require(w.run("migrate", "get"), ExitUsage, "--dialect")
	w.require(w.run("migrate", "get", "--dialect", "oracle"), ExitUsage, "oracle")
	w.require(w.run("migrate", "get", "--dialect", "sqlite", "--format", "liquibase"), ExitUsage, "goose")
	w.require(w.run("migrate", "get", "--dialect", "sqlite", "--format", "goose", "--down"), ExitUsage, "raw")
}

// Kinds of tables go up and down in any order, and none changes another one.
func TestMigrateRandomSteps(t *testing.T) {
	if testing.Short() {
		return // takes long
	}
	t.Parallel()
	each(t, func(w *world) {
		steps := 100
		if w.dialect == core.SQLite {
			steps = 500
		}
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		newest, now := map[string]int{}, map[string]int{}
		for _, k := range kinds {
			migrations, err := k.migrations(place{Dialect: w.dialect, Prefix: k.prefix})
			must(w, err)
			newest[k.name] = migrations[len(migrations)-1].Version
		}
		for n := range steps {
			k := kinds[rng.IntN(len(kinds))].name
			switch to := rng.IntN(newest[k] + 1); {
			case rng.IntN(2) == 0:
				w.ok("migrate", "up", "--tables", k)
				now[k] = newest[k]
			case now[k] > 0:
				w.ok("migrate", "down", "--tables", k, "--to", strconv.Itoa(to), "--yes")
				now[k] = min(now[k], to)
			}
			for _, k := range kinds {
				r := w.run("migrate", "validate", "--tables", k.name)
				if (r.code == ExitOK) != (now[k.name] == newest[k.name]) {
					w.Fatalf("seed %d, step %d: tables %s of version %d: %+v", seed, n, k.name, now[k.name], r)
				}
			}
		}
	})
}
