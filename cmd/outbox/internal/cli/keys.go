package cli

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// maxKeysLook is how many dead events `outbox keys` reads.
const maxKeysLook = 10_000

// blockedKey is a key that a dead event holds up.
type blockedKey struct {
	Topic   string    `json:"topic"`
	Tenant  string    `json:"tenant_id,omitempty"`
	Key     string    `json:"key"`
	Head    ops.Event `json:"head"` // the dead event that has to go first
	Dead    int       `json:"dead"`
	Waiting ops.Count `json:"waiting"` // open events behind it
}

// blockedKeys is what `outbox keys` prints.
type blockedKeys struct {
	Keys []blockedKey `json:"keys"`
	paging
}

func (a *app) keysCommand() *cobra.Command {
	var f ops.Filter
	var limit int
	c := group(&cobra.Command{
		Use:   "keys",
		Short: "List the keys that a dead event blocks: the event, why, and how many wait",
		Long: `keys lists the keys that a dead event blocks, the one that is blocked for longest first. Redrive or
discard the event that is named, and the key goes on. With DeadPolicy SkipDead nothing is blocked.`,
		Example: "  outbox keys --topic orders\n  outbox keys reset --reason 'failover of db1, INC-42'",
	}, a.keysResetCommand())
	c.Args = cobra.NoArgs
	c.RunE = func(c *cobra.Command, _ []string) error {
		if limit < 1 || limit > 1000 {
			return usage("--limit %d: it is 1 to 1000", limit)
		}
		return a.withOps(c, func(ctx context.Context, api *ops.API) error {
			keys, err := a.blockedKeys(ctx, api, f, limit)
			if err != nil {
				return err
			}
			if len(keys.Keys) == 0 {
				a.hintUnseen(ctx, api, f)
			}
			return a.print(keys, func() { a.printKeys(keys) })
		})
	}
	c.Flags().Var((*selector)(&f.Topic), "topic", "only keys of this topic")
	c.Flags().Var((*selector)(&f.TenantID), "tenant", "only keys of this tenant")
	c.Flags().IntVar(&limit, "limit", 100, "keys to list, up to 1000")
	return c
}

// blockedKeys reads the dead events, and counts what waits behind the first one of each key.
func (a *app) blockedKeys(ctx context.Context, api *ops.API, f ops.Filter, limit int) (all blockedKeys, err error) {
	f.Statuses = []ops.Status{ops.StatusDead}
	q := ops.ListQuery{Filter: f, Limit: ops.MaxLimit}
	byKey := map[core.KeyID]*blockedKey{}
	for looked := 0; ; looked += ops.MaxLimit {
		if looked >= maxKeysLook {
			all.More = true
			break
		}
		page, err := api.List(ctx, q)
		if err != nil {
			return all, err
		}
		for _, e := range page.Events {
			if e.KeyID.IsZero() {
				continue
			}
			k := byKey[e.KeyID]
			if k == nil {
				k = &blockedKey{Topic: e.Topic, Tenant: e.TenantID, Key: e.Key, Head: e}
				byKey[e.KeyID] = k
			}
			if k.Dead++; e.KeySeq < k.Head.KeySeq {
				k.Head = e
			}
		}
		if page.Next == "" {
			break
		}
		q.After = page.Next
	}
	all.Keys = []blockedKey{}
	for _, k := range byKey {
		all.Keys = append(all.Keys, *k)
	}
	slices.SortFunc(all.Keys, func(a, b blockedKey) int {
		return cmp.Or(a.Head.CreatedAt.Compare(b.Head.CreatedAt), cmp.Compare(a.Head.ID.String(), b.Head.ID.String()))
	})
	if len(all.Keys) > limit {
		all.Keys, all.More = all.Keys[:limit], true
	}
	for i := range all.Keys {
		k := &all.Keys[i]
		k.Waiting, err = api.Count(ctx, ops.Filter{
			Statuses: []ops.Status{ops.StatusNew, ops.StatusRetry}, Topic: k.Topic, TenantID: k.Tenant, Key: k.Key,
		})
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

func (a *app) printKeys(all blockedKeys) {
	if len(all.Keys) == 0 {
		a.sayf("no key is blocked\n")
		return
	}
	t := &table{}
	t.add("TOPIC", "TENANT", "KEY", "WAITING", "DEAD", "FIRST DEAD EVENT", "CREATED", "CODE", "ERROR")
	for _, k := range all.Keys {
		t.add(k.Topic, orDash(k.Tenant), short(k.Key), k.Waiting.String(), strconv.Itoa(k.Dead), k.Head.ID.String(),
			moment(k.Head.CreatedAt), orDash(k.Head.ErrorCode), orDash(short(k.Head.Error)))
	}
	t.write(a.Out)
	a.notePaging(all.paging)
}

// keysReset is what `outbox keys reset` prints.
type keysReset struct {
	DryRun bool      `json:"dry_run"`
	Keys   int       `json:"keys"`
	At     time.Time `json:"at"`
}

// countKeys counts the keys up to maxCounted.
func (a *app) countKeys(ctx context.Context, db *database) (n int, err error) {
	err = db.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM "+db.quote(a.schema, a.prefixOf()+"key")+
		" LIMIT "+strconv.Itoa(maxCounted)+") k").Scan(&n)
	return n, err
}

func (a *app) keysResetCommand() *cobra.Command {
	var w who
	c := &cobra.Command{
		Use:   "reset --reason TEXT",
		Short: "After a failover or a restore that lost commits: let the table alone decide the order of the keys",
		Long: `reset is the second step after a failover or a restore that lost commits. Stop the services that
publish first, then reset, then start them: from then on the table alone decides the number of the
next event of each key. Events that were lost with their commits stay lost. It waits for open
transactions that publish, and changes one row of each key.

The command prints how many keys there are, up to 100,000. Then it asks.

Actor and reason are stored in the audit table, in the same transaction. Without a terminal it needs
--yes, or it is refused (exit code 5).`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := w.check(); err != nil {
				return err
			}
			return a.withOutbox(c, func(ctx context.Context, db *database, ob *core.Outbox) error {
				n, err := a.countKeys(ctx, db)
				if err != nil {
					return db.withTables(ctx, kinds[0], a.schema, a.prefix, err)
				}
				if !a.json {
					a.sayf("reset: %s\n", many(n, "key"))
				}
				if w.dryRun {
					return a.print(keysReset{DryRun: true, Keys: n, At: a.now().UTC()}, func() {})
				}
				question := "the services that publish are stopped? reset the keys of " + db.name + "?"
				if err := a.confirm(w, question); err != nil {
					return err
				}
				if n, err = ob.ResetKeysBy(ctx, w.actor, w.reason); err != nil {
					return err
				}
				return a.print(keysReset{Keys: n, At: a.now().UTC()}, func() { a.sayf("%d keys reset\n", n) })
			})
		},
	}
	w.flags(c)
	w.dryRunFlag(c, "")
	return c
}
