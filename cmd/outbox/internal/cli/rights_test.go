package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

// grant is one right of a role: a privilege on a table, on all tables, or on the server.
type grant struct{ privilege, on string }

func (g grant) statement() string {
	return "GRANT " + strings.TrimSpace(g.privilege+" "+g.on) + " TO ROLE"
}

func (g grant) revoke() string {
	return "REVOKE " + strings.TrimSpace(g.privilege+" "+g.on) + " FROM ROLE"
}

// onAll reports whether the right is one on every table.
func (g grant) onAll() bool {
	return strings.HasPrefix(g.on, "ON ALL TABLES") || strings.HasPrefix(g.on, "ON DATABASE.*")
}

var (
	grantLine  = regexp.MustCompile(`(?m)^GRANT (.*?)(?: (ON .*?))? TO (\w+);$`)
	privileges = regexp.MustCompile(`\w+(?: \(\w+\))?`)
)

// documentedGrants are the rights of docs/rights.md for the kind of server, by role.
func documentedGrants(t *testing.T, d core.Dialect) map[string][]grant {
	t.Helper()
	grants := map[string][]grant{}
	other := map[core.Dialect]string{core.Postgres: "-- MariaDB", core.MySQL: "-- PostgreSQL"}[d]
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(
		repository(t, "docs", "rights.md"), -1) {
		if strings.HasPrefix(block[1], other) {
			continue
		}
		for _, m := range grantLine.FindAllStringSubmatch(block[1], -1) {
			on := strings.Replace(m[2], "ON shop.", "ON DATABASE.", 1)
			for _, p := range privileges.FindAllString(m[1], -1) {
				grants[m[3]] = append(grants[m[3]], grant{p, on})
			}
		}
	}
	return grants
}

// actor does the work of a role, with the rights of the role. admin prepares and looks.
type actor struct {
	*world
	admin *world
}

// failure is what ends the work of an actor.
type failure struct{ error }

// must ends the feature if there is an error. It may run many times in a test, so it is no failure
// of the test.
func (a *actor) must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// cli executes a command that must succeed.
func (a *actor) cli(args ...string) string {
	a.Helper()
	r := a.run(args...)
	if r.code != ExitOK || strings.Contains(r.err, "denied") {
		a.must(fmt.Errorf("outbox %s: exit code %d: %s%s", strings.Join(args, " "), r.code, r.err, r.out))
	}
	return r.out
}

// feature is a part of the work of a role. It can be done any number of times.
type feature struct {
	name string
	do   func(a *actor)
}

// try does a feature.
func (a *actor) try(f feature) (err error) {
	defer func() {
		if p := recover(); p != nil {
			failed, ok := p.(failure)
			if !ok {
				panic(p)
			}
			err = fmt.Errorf("%s: %w", f.name, failed.error)
		}
	}()
	f.do(a)
	return nil
}

// work does features until one fails.
func (a *actor) work(features []feature) error {
	for _, f := range features {
		if err := a.try(f); err != nil {
			return err
		}
	}
	return nil
}

// denied reports whether a database has refused something. MySQL says of a table that a role may not
// read that it is missing.
func denied(err error) bool {
	return errors.Is(err, core.ErrNoTables) ||
		err != nil && (strings.Contains(err.Error(), "denied") || strings.Contains(err.Error(), "not visible"))
}

// cast makes an actor for each role of docs/rights.md.
func cast(w *world) (grants map[string][]grant, actors map[string]*actor) {
	w.Helper()
	w.ok("migrate", "up", "--tables", "inbox,keys,effects")
	w.shared = w.open()
	grants, actors = documentedGrants(w.T, w.dialect), map[string]*actor{}
	grants["worker"] = append(grants["worker"], grants["producer"]...)
	for _, name := range slices.Sorted(maps.Keys(grants)) {
		as := w.role(grantTexts(grants[name])...)
		as.shared = as.open()
		as.shared.SetMaxIdleConns(-1) // MySQL looks at new rights on a database when a connection begins
		actors[name] = &actor{world: as, admin: w}
	}
	if len(grants) != len(rolesWork) {
		w.Fatalf("docs/rights.md has the roles %v", slices.Sorted(maps.Keys(grants)))
	}
	return grants, actors
}

func grantTexts(grants []grant) (all []string) {
	for _, g := range grants {
		all = append(all, g.statement())
	}
	return all
}

// Every role does its work with the rights of docs/rights.md.
func TestDocumentedRights(t *testing.T) {
	servers(t, func(w *world) {
		_, actors := cast(w)
		for name, features := range rolesWork {
			if err := actors[name].work(features); err != nil {
				w.Errorf("%s: %v", name, err)
			}
		}
		actors["viewer"].looksAtPages()
		actors["operator"].looksAtPages()
		actors["operator"].revealsOnPage()
	})
}

// Without any one of its rights a role fails in a part of its work. So no right is too many.
func TestDocumentedRightsAreNeeded(t *testing.T) {
	servers(t, func(w *world) {
		grants, actors := cast(w)
		for name, features := range rolesWork {
			features = slices.Clone(features)
			all := slices.ContainsFunc(grants[name], grant.onAll)
			for _, g := range grants[name] {
				if all && g.privilege == "SELECT" && !g.onAll() {
					if w.dialect == core.Postgres { // MySQL needs more on all tables
						w.Errorf("%s: %s is part of the right on all tables", name, g.statement())
					}
					continue
				}
				a := actors[name]
				w.exec(w.named(a.user(), g.revoke()))
				var err error
				locks := w.dialect == core.MySQL && g.privilege == "UPDATE" && // DELETE may lock rows there
					slices.Contains(grants[name], grant{"DELETE", g.on})
				i := slices.IndexFunc(features, func(f feature) bool { err = a.try(f); return err != nil })
				if !denied(err) && (err != nil || !locks) {
					w.Errorf("%s: nothing is refused without %s: %v", name, g.statement(), err)
				}
				// The next grant is often of the same table, and so refused by the same feature. The few features
				// of a relay stay in their order: a relay that may not look at its tables waits.
				if i > 0 && name != "relay" {
					refused := features[i]
					copy(features[1:], features[:i])
					features[0] = refused
				}
				w.exec(w.named(a.user(), g.statement()))
			}
		}
	})
}

// A role is refused what it has no right to: each kind of statement on each table, and the work of
// each other role. The viewer is refused each change of the operator.
func TestOtherRightsAreRefused(t *testing.T) {
	servers(t, func(w *world) {
		grants, actors := cast(w)
		tables := map[string]string{} // with a column
		for _, all := range grants {
			for _, g := range all {
				if table, ok := strings.CutPrefix(g.on, "ON "); ok && !g.onAll() && !strings.Contains(table, "*") {
					tables[table] = w.firstColumn(table)
				}
			}
		}
		for name, a := range actors {
			for table, column := range tables {
				a.probe(name, grants[name], table, column)
			}
			for other, features := range rolesWork {
				if other == name || covers(grants[name], grants[other]) {
					continue
				}
				if err := a.work(features); !denied(err) {
					w.Errorf("%s does the work of %s: %v", name, other, err)
				}
			}
		}
		for _, f := range rolesWork["operator"] {
			if err := actors["viewer"].try(f); !denied(err) {
				w.Errorf("the viewer does %s: %v", f.name, err)
			}
		}
	})
}

// covers reports whether a role with the rights has those of another one.
func covers(rights, of []grant) bool {
	return !slices.ContainsFunc(of, func(g grant) bool {
		return !slices.Contains(rights, g) &&
			(g.privilege != "SELECT" || g.onAll() || !slices.ContainsFunc(rights, grant.onAll))
	})
}

// firstColumn returns a column of a table.
func (w *world) firstColumn(table string) (name string) {
	w.Helper()
	schema := map[core.Dialect]string{
		core.Postgres: "current_schema() AND is_identity = 'NO'", core.MySQL: "DATABASE()",
	}[w.dialect]
	must(w, w.open().QueryRowContext(w.Context(), "SELECT column_name FROM information_schema.columns WHERE "+
		"table_name = '"+table+"' AND table_schema = "+schema+" ORDER BY ordinal_position LIMIT 1").Scan(&name))
	return name
}

// probe tries each kind of statement on a table.
func (a *actor) probe(name string, grants []grant, table, column string) {
	a.Helper()
	tx, err := a.open().BeginTx(a.Context(), nil)
	must(a, err)
	defer tx.Rollback()
	insert := " DEFAULT VALUES"
	if a.dialect == core.MySQL {
		insert = " () VALUES ()"
	}
	for privilege, text := range map[string]string{
		"SELECT": "SELECT 1 FROM " + table + " WHERE 1 = 0", "INSERT": "INSERT INTO " + table + insert,
		"UPDATE": "UPDATE " + table + " SET " + column + " = NULL WHERE 1 = 0",
		"DELETE": "DELETE FROM " + table + " WHERE 1 = 0",
	} {
		has := slices.Contains(grants, grant{privilege, "ON " + table}) ||
			privilege == "SELECT" && slices.ContainsFunc(grants, grant.onAll)
		if err := attempt(a.Context(), tx, text); denied(err) == has {
			a.Errorf("%s has the right: %t; %s: %v", name, has, text, err)
		}
	}
}

// attempt runs a statement in a transaction that goes on.
func attempt(ctx context.Context, tx *sql.Tx, text string) error {
	if _, err := tx.ExecContext(ctx, "SAVEPOINT attempt"); err != nil {
		return err
	}
	_, failed := tx.ExecContext(ctx, text)
	if _, err := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT attempt"); err != nil {
		return err
	}
	return failed
}

// looksAtPages opens every page of `outbox ui`.
func (a *actor) looksAtPages() {
	a.Helper()
	a.admin.publish(core.Event{Type: "a", Topic: "pages", Key: "1"})
	var page struct{ Events []struct{ ID string } }
	a.json(&page, "list", "--topic", "pages")
	site, token, _ := strings.Cut(a.serves("--actor", "ada", "--name", "shop"), "?token=")
	b := newBrowser(a.world)
	b.ask(http.MethodGet, site+"shop/?token="+token, nil)
	for _, path := range []string{
		"", "events", "events/" + page.Events[0].ID, "groups", "keys", "consumers", "effects", "httpkeys", "relays",
		"plans", "audit", "doctor",
	} {
		code, text, _ := b.ask(http.MethodGet, site+"shop/"+path, nil)
		if code != http.StatusOK || path != "doctor" && strings.Contains(text, "denied") {
			a.Errorf("page %s: %d: %s", path, code, text)
		}
	}
}

// revealsOnPage sees a payload on the page, which the audit has.
func (a *actor) revealsOnPage() {
	a.Helper()
	a.admin.publish(core.Event{Type: "a", Topic: "reveal", Payload: []byte("the-payload")})
	var page struct{ Events []struct{ ID string } }
	a.json(&page, "list", "--topic", "reveal")
	site, token, _ := strings.Cut(a.serves("--actor", "ada", "--name", "shop"), "?token=")
	b := newBrowser(a.world)
	b.ask(http.MethodGet, site+"shop/?token="+token, nil)
	code, text, _ := b.ask(http.MethodPost, site+"shop/events/"+page.Events[0].ID, url.Values{"reason": {"INC-43"}})
	if code != http.StatusOK || !strings.Contains(text, "the-payload") {
		a.Errorf("reveal: %d: %s", code, text)
	}
}

// releases releases two messages of a poison queue, which the consumer processes. One of their events
// was redriven before: only a trial shows whether it may be processed.
func (a *actor) releases() {
	p := newParking(a.admin)
	redriven := core.NewEventID()
	p.park(core.NewEventID(), "ada")
	p.park(redriven, "bob")
	a.admin.ok("inbox", "redrive", redriven, "--consumer", "mailer", "--reason", "x", "--yes")
	p.consume()
	a.cli("inbox", "release", "--consumer", "mailer", "--from", p.from, "--reason", "x", "--yes")
}
