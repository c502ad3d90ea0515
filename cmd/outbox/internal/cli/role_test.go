package cli

import (
	"context"
	"net/url"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// role makes a role that may do what the grants say, in which ROLE and DATABASE stand for the
// names. It returns the database as that role sees it.
func (w *world) role(grants ...string) *world {
	w.Helper()
	u, err := url.Parse(w.address)
	must(w, err)
	name := unique()
	create, drop := "CREATE ROLE "+name+" LOGIN", []string{"DROP OWNED BY " + name, "DROP ROLE " + name}
	if w.dialect == core.MySQL {
		create, drop = "CREATE USER "+name, []string{"DROP USER " + name}
	}
	w.exec(create)
	admin, err := connect(w.address)
	must(w, err)
	w.Cleanup(func() { // the context of the test has ended
		for _, stmt := range drop {
			noError(w, errOf(admin.ExecContext(context.Background(), stmt)))
		}
		_ = admin.Close()
	})
	for _, grant := range grants {
		w.exec(w.named(name, grant))
	}
	u.User = url.User(name)
	as := *w
	as.shared = nil
	as.address = u.String()
	return &as
}

// named is a statement about a role, in which ROLE and DATABASE stand for the names.
func (w *world) named(role, statement string) string {
	w.Helper()
	u, err := url.Parse(w.address)
	must(w, err)
	return strings.NewReplacer("ROLE", role, "DATABASE", strings.TrimPrefix(u.Path, "/")).Replace(statement)
}

// user is the role.
func (w *world) user() string {
	w.Helper()
	u, err := url.Parse(w.address)
	must(w, err)
	return u.User.Username()
}

// reader is a role with SELECT on all tables of the database, and no other right.
func (w *world) reader() *world {
	w.Helper()
	return w.role(map[core.Dialect]string{
		core.Postgres: "GRANT SELECT ON ALL TABLES IN SCHEMA public TO ROLE",
		core.MySQL:    "GRANT SELECT ON DATABASE.* TO ROLE",
	}[w.dialect])
}

// doctor runs it with --json.
func (w *world) doctor(args ...string) (all []finding) {
	w.Helper()
	w.list(&all, "findings", append([]string{"doctor"}, args...)...)
	return all
}

// requireHidden requires that a check says that it does not see something, and nothing is in order
// there. It returns the statement that gives the right.
func (w *world) requireHidden(check, part string, args ...string) (grant string) {
	w.Helper()
	all := w.doctor(args...)
	f := found(all, check, "not visible: ")
	if f.Level != levelWarning || !strings.Contains(f.Found, part) || !strings.HasPrefix(f.Fix, "GRANT ") {
		w.Errorf("%s does not say that it does not see %s: %+v", check, part, all)
	}
	for _, f := range all {
		if f.Check == check && f.Level == levelOK {
			w.Errorf("%s is in order: %+v", check, f)
		}
	}
	grant, _, _ = strings.Cut(f.Fix, " ("+guideOfRights)
	return grant
}
