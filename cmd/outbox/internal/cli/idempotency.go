package cli

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// keyStatuses are the statuses of the table idempotency_key.
var keyStatuses = map[string]int{"failed": 0, "held": 1, "done": 2}

// abandoned is the status of a key that is held, and whose lease is over.
const abandoned = "abandoned"

// scopeState counts the keys of a scope.
type scopeState struct {
	Scope     string `json:"scope"`
	Held      int64  `json:"held"`
	Abandoned int64  `json:"abandoned"`
	Failed    int64  `json:"failed"`
	Done      int64  `json:"done"`
	Capped    bool   `json:"capped"` // older keys were not counted
}

// scopeList is what `outbox idempotency` prints.
type scopeList struct {
	Scopes []scopeState `json:"scopes"`
}

// keyRow is an idempotency key as list prints it. The stored result is not among its fields.
type keyRow struct {
	Scope      string     `json:"scope"`
	Tenant     string     `json:"tenant_id,omitempty"`
	ID         string     `json:"id"`
	Status     string     `json:"status"`
	Attempts   int        `json:"attempts"`
	CreatedAt  time.Time  `json:"created_at"`
	LeaseUntil *time.Time `json:"lease_until,omitempty"`
	DoneAt     *time.Time `json:"done_at,omitempty"`
	ExpiresAt  time.Time  `json:"expires_at"`
}

// keyPage is what `outbox idempotency list` prints.
type keyPage struct {
	Keys []keyRow `json:"keys"`
	paging
}

// keyFilter selects rows of idempotency_key.
type keyFilter struct {
	scope, tenant, id, status string
	limit                     int
}

func (a *app) idempotencyCommand() *cobra.Command {
	c := group(&cobra.Command{
		Use:   "idempotency",
		Short: "Count the idempotency keys of requests and of other work, and list them",
		Long: `idempotency counts the keys of each scope, which is the kind of work: a method with its route, or the
name that a program gives.

  held       a process works under it
  abandoned  its process disappeared; the next request with the key takes over
  failed     the work failed; the next request with the key does it again
  done       the result is stored, until the key expires

The 100,000 keys that expire last are counted; a plus behind a number says that there may be more.
Keys that are in Redis are not among them. It changes nothing: a lease ends by itself, and an expired
key is deleted by the cleanup of the services.`,
		Example: "  outbox idempotency\n  outbox idempotency list --scope 'http/POST /orders' --id 7f3a-91",
	}, a.idempotencyListCommand())
	c.Args = cobra.NoArgs
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.withKind(c, "keys", func(ctx context.Context, db *database) error {
			rows, err := a.keyRows(ctx, db, keyFilter{limit: maxCounted})
			if err != nil {
				return err
			}
			states := scopeStates(rows)
			return a.print(scopeList{states}, func() { a.printScopes(states) })
		})
	}
	return c
}

func scopeStates(rows []keyRow) []scopeState {
	by := map[string]*scopeState{}
	for _, r := range rows {
		s := by[r.Scope]
		if s == nil {
			s = &scopeState{Scope: r.Scope, Capped: len(rows) >= maxCounted}
			by[r.Scope] = s
		}
		switch r.Status {
		case "held":
			s.Held++
		case abandoned:
			s.Abandoned++
		case "failed":
			s.Failed++
		default:
			s.Done++
		}
	}
	states := []scopeState{}
	for _, scope := range slices.Sorted(maps.Keys(by)) {
		states = append(states, *by[scope])
	}
	return states
}

func (a *app) printScopes(states []scopeState) {
	if len(states) == 0 {
		a.sayf("no key is stored\n")
		return
	}
	t := &table{}
	t.add("SCOPE", "HELD", "ABANDONED", "FAILED", "DONE")
	for _, s := range states {
		num := func(n int64) string {
			if s.Capped {
				return strconv.FormatInt(n, 10) + "+"
			}
			return strconv.FormatInt(n, 10)
		}
		t.add(short(s.Scope), num(s.Held), num(s.Abandoned), num(s.Failed), num(s.Done))
	}
	t.write(a.Out)
}

func (a *app) idempotencyListCommand() *cobra.Command {
	var f keyFilter
	c := &cobra.Command{
		Use:   "list",
		Short: "List idempotency keys: their status, lease and expiry",
		Long: `list lists idempotency keys without their stored results, those that expire last first. It looks at the
100,000 keys that expire last. With --id it finds any key, by the index if --scope is given too. Exit
code 1 says that no key has that id, or none that the other flags select.`,
		Example: "  outbox idempotency list --status held\n" +
			"  outbox idempotency list --scope 'http/POST /orders' --id 7f3a-91 --json",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if _, known := keyStatuses[f.status]; f.status != "" && f.status != abandoned && !known {
				return usage("--status %q: it is held, abandoned, failed or done", f.status)
			}
			if f.limit < 1 || f.limit > 1000 {
				return usage("--limit %d: it is 1 to 1000", f.limit)
			}
			return a.withKind(c, "keys", func(ctx context.Context, db *database) error {
				rows, err := a.keyRows(ctx, db, f)
				if err != nil {
					return err
				}
				if len(rows) == 0 {
					a.hintUnlisted(ctx, db, a.prefix+"idempotency_key", "scope", f.scope, "outbox idempotency")
				}
				page := keyPage{Keys: rows, paging: paging{More: len(rows) == f.limit}}
				err = a.print(page, func() { a.printKeyRows(page) })
				if err == nil && f.id != "" && len(rows) == 0 {
					err = exit(ExitFailed, "no such key has the id %s", short(f.id))
				}
				return err
			})
		},
	}
	flags := c.Flags()
	flags.Var((*selector)(&f.scope), "scope", "only keys of this scope")
	flags.Var((*selector)(&f.tenant), "tenant", "only keys of this tenant")
	flags.Var((*selector)(&f.id), "id", "only this key, as the client sends it")
	flags.StringVar(&f.status, "status", "", "held (also abandoned), abandoned, failed or done (default: all)")
	flags.IntVar(&f.limit, "limit", 100, "keys to list, up to 1000")
	_ = c.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(
		[]string{"held", abandoned, "failed", "done"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// keyRows reads the keys that a filter selects.
func (a *app) keyRows(ctx context.Context, db *database, f keyFilter) ([]keyRow, error) {
	now, err := db.now(ctx)
	if err != nil {
		return nil, err
	}
	from := db.quote(a.schema, a.prefix+"idempotency_key")
	if f.id == "" {
		from = fmt.Sprintf("(SELECT scope, tenant, id, status, attempts, created_at, lease_until, done_at, expires_at "+
			"FROM %s ORDER BY expires_at DESC LIMIT %d)", from, maxCounted)
	}
	var conds []string
	var args []any
	for _, c := range []struct{ column, value string }{{"scope", f.scope}, {"tenant", f.tenant}, {"id", f.id}} {
		if c.value != "" {
			conds, args = append(conds, "k."+c.column+" = ?"), append(args, c.value)
		}
	}
	switch f.status {
	case "":
	case abandoned:
		conds = append(conds, "k.status = 1", db.micros("k.lease_until")+" < "+strconv.FormatInt(now.UnixMicro(), 10))
	default:
		conds = append(conds, "k.status = "+strconv.Itoa(keyStatuses[f.status]))
	}
	query := "SELECT k.scope, k.tenant, k.id, k.status, k.attempts, " + db.micros("k.created_at") + ", " +
		db.micros("k.lease_until") + ", " + db.micros("k.done_at") + ", " + db.micros("k.expires_at") +
		" FROM " + from + " k"
	if len(conds) > 0 {
		query += " WHERE " + strings.Join(conds, " AND ")
	}
	query += " ORDER BY k.expires_at DESC LIMIT " + strconv.Itoa(f.limit)
	all := []keyRow{}
	err = db.each(ctx, db.bind(query), args, func(rows *sql.Rows) error {
		var r keyRow
		var status int
		var created, lease, done, expires nullMicros
		if err := rows.Scan(&r.Scope, &r.Tenant, &r.ID, &status, &r.Attempts, &created, &lease, &done,
			&expires); err != nil {
			return err
		}
		for name, n := range keyStatuses {
			if n == status {
				r.Status = name
			}
		}
		r.CreatedAt, r.ExpiresAt, r.LeaseUntil, r.DoneAt = created.Time, expires.Time, lease.orNil(), done.orNil()
		if r.LeaseUntil != nil && lease.Before(now) {
			r.Status = abandoned
		}
		all = append(all, r)
		return nil
	})
	return all, err
}

func (a *app) printKeyRows(page keyPage) {
	if len(page.Keys) == 0 {
		a.sayf("no key\n")
		return
	}
	orNone := func(t *time.Time) string {
		if t == nil {
			return "-"
		}
		return moment(*t)
	}
	t := &table{}
	t.add("SCOPE", "TENANT", "ID", "STATUS", "ATTEMPTS", "CREATED", "LEASE UNTIL", "DONE", "EXPIRES")
	for _, r := range page.Keys {
		t.add(short(r.Scope), orDash(short(r.Tenant)), short(r.ID), r.Status, strconv.Itoa(r.Attempts),
			moment(r.CreatedAt), orNone(r.LeaseUntil), orNone(r.DoneAt), moment(r.ExpiresAt))
	}
	t.write(a.Out)
	a.notePaging(page.paging)
}
