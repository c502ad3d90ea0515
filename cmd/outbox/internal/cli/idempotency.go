package cli

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	oncekey "github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
)

// keyStatuses are the statuses of the keys that list shows.
var keyStatuses = []oncekey.KeyStatus{oncekey.KeyHeld, oncekey.KeyAbandoned, oncekey.KeyFailed, oncekey.KeyDone}

// abandoned is the status of a key that is held, and whose lease is over.
const abandoned = string(oncekey.KeyAbandoned)

// scopeState counts the keys of a scope.
type scopeState struct {
	Scope     string `json:"scope"`
	Held      int64  `json:"held"`
	Abandoned int64  `json:"abandoned"`
	Failed    int64  `json:"failed"`
	Done      int64  `json:"done"`
	Capped    bool   `json:"capped"` // older keys were not counted
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
		Long: `idempotency counts the keys of each scope, such as a method and its route:

  held       a process is doing the work
  abandoned  its process disappeared; the next request with the key takes over
  failed     the work failed; the next request with the key does it again
  done       the result is stored, until the key expires

Keys in Redis are not counted.`,
		Example: "  outbox idempotency list --status held",
	}, a.idempotencyListCommand())
	c.Args = cobra.NoArgs
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.withKeys(c, func(ctx context.Context, store *sqlonce.Store) error {
			scopes, err := store.Backlog(ctx, maxCounted)
			if err != nil {
				return err
			}
			states := converted(scopes, scopeStateOf)
			return a.print(listing{"scopes": states}, func() { a.printScopes(states) })
		})
	}
	return c
}

// withKeys runs fn with the table of keys, with the prefix of --prefix, or none.
func (a *app) withKeys(c *cobra.Command, fn func(ctx context.Context, store *sqlonce.Store) error) error {
	return a.withKind(c, "keys", func(ctx context.Context, db *database) error {
		store, err := sqlonce.New(db.DB, sqlonce.Config{Dialect: db.dialect, Schema: a.schema, Prefix: a.prefix})
		if err != nil {
			return usage("%w", err)
		}
		return fn(ctx, store)
	})
}

func scopeStateOf(b oncekey.Backlog) scopeState {
	return scopeState{
		Scope: b.Scope, Held: int64(b.Held), Abandoned: int64(b.Abandoned), Failed: int64(b.Failed),
		Done: int64(b.Done), Capped: b.More,
	}
}

func (a *app) printScopes(states []scopeState) {
	printRows(a, "no key is stored", "SCOPE|HELD|ABANDONED|FAILED|DONE", states,
		func(t *table, s scopeState) {
			num := func(n int64) string { return counted(n, s.Capped) }
			t.add(short(s.Scope), num(s.Held), num(s.Abandoned), num(s.Failed), num(s.Done))
		})
}

func (a *app) idempotencyListCommand() *cobra.Command {
	var f keyFilter
	c := &cobra.Command{
		Use:   "list",
		Short: "List idempotency keys: their status, lease and expiry",
		Long: `list lists keys without their results, among the 100,000 that expire last. --id finds any key, by an
index if --scope is given too. Exit code 1: no such key.`,
		Example: "  outbox idempotency list --scope 'http/POST /orders' --id 7f3a-91",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.status != "" && !slices.Contains(keyStatuses, oncekey.KeyStatus(f.status)) {
				return usage("--status %q: it is held, abandoned, failed or done", f.status)
			}
			return a.withKeys(c, func(ctx context.Context, store *sqlonce.Store) error {
				rows, more, err := keyRows(ctx, store, f)
				if err != nil {
					return err
				}
				if len(rows) == 0 {
					a.hintScope(ctx, store, f.scope)
				}
				page := keyPage{Keys: rows, paging: paging{More: more}}
				err = a.print(page, func() { a.printKeyRows(page) })
				if err == nil && f.id != "" && len(rows) == 0 {
					err = exit(ExitFailed, "no such key has the id %s", short(f.id))
				}
				return err
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.scope, "scope", "", "of this scope")
	flags.StringVar(&f.tenant, "tenant", "", "only of this tenant")
	flags.StringVar(&f.id, "id", "", "the key, as the client sends it")
	flags.StringVar(&f.status, "status", "", "held (also abandoned), abandoned, failed or done (default: all)")
	limitFlag(c, &f.limit, 100, 1000)
	complete(c, "status", "held", abandoned, "failed", "done")
	return c
}

// hintScope warns that no key has the scope of a filter.
func (a *app) hintScope(ctx context.Context, store *sqlonce.Store, scope string) {
	scopes, err := store.Backlog(ctx, maxCounted)
	if err == nil {
		a.hintUnlisted("idempotency_key", "scope", scope, "outbox idempotency",
			converted(scopes, func(b oncekey.Backlog) string { return b.Scope }))
	}
}

// keyRows reads the keys that a filter selects, and reports whether there are more. Without the id
// of a key it looks at maxCounted keys.
func keyRows(ctx context.Context, store *sqlonce.Store, f keyFilter) (all []keyRow, more bool, err error) {
	all = []keyRow{}
	q := oncekey.KeyQuery{Scope: f.scope, Tenant: f.tenant, ID: f.id}
	held := f.status == string(oncekey.KeyHeld) // also the abandoned ones
	if !held {
		q.Status = oncekey.KeyStatus(f.status)
	}
	for looked := 0; f.id != "" || looked < maxCounted; looked += keysLook {
		q.Limit = min(f.limit-len(all), 1000)
		page, err := store.ListKeys(ctx, q)
		if err != nil {
			return nil, false, err
		}
		for _, k := range page.Keys {
			if !held || k.Status == oncekey.KeyHeld || k.Status == oncekey.KeyAbandoned {
				all = append(all, keyRowOf(k))
			}
		}
		if q.After = page.Next; page.Next == "" || len(all) == f.limit {
			return all, page.Next != "", nil
		}
	}
	return all, true, nil
}

// keysLook is how many keys a call of ListKeys looks at, if it finds few of them.
const keysLook = 10_000

func keyRowOf(k oncekey.StoredKey) keyRow {
	orNil := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	return keyRow{
		Scope: k.Key.Scope, Tenant: k.Key.Tenant, ID: k.Key.ID, Status: string(k.Status), Attempts: k.Attempts,
		CreatedAt: k.CreatedAt, LeaseUntil: orNil(k.LeaseUntil), DoneAt: orNil(k.DoneAt), ExpiresAt: k.ExpiresAt,
	}
}

func (a *app) printKeyRows(page keyPage) {
	orNone := func(t *time.Time) string {
		if t == nil {
			return "-"
		}
		return moment(*t)
	}
	printRows(a, "no key", "SCOPE|TENANT|ID|STATUS|ATTEMPTS|CREATED|LEASE UNTIL|DONE|EXPIRES", page.Keys,
		func(t *table, r keyRow) {
			t.add(short(r.Scope), orDash(short(r.Tenant)), short(r.ID), r.Status, strconv.Itoa(r.Attempts),
				moment(r.CreatedAt), orNone(r.LeaseUntil), orNone(r.DoneAt), moment(r.ExpiresAt))
		})
	a.notePaging(page.paging)
}
