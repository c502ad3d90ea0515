package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// blockedKeys is what `outbox keys` prints.
type blockedKeys struct {
	Keys []ops.BlockedKey `json:"keys"`
	paging
}

func (a *app) keysCommand() *cobra.Command {
	var q ops.KeyQuery
	c := group(&cobra.Command{
		Use:   "keys",
		Short: "List the keys that a dead event blocks: the event, why, and how many wait",
		Long: `keys lists the keys that a dead event blocks, longest first. Redrive or discard the event that it
names, and the key goes on.`,
		Example: "  outbox keys --topic orders",
	}, a.keysResetCommand())
	c.Args = cobra.NoArgs
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.withOutbox(c, func(ctx context.Context, s *session) error {
			found, err := s.api.BlockedKeys(ctx, q)
			if err != nil {
				return err
			}
			if len(found.Keys) == 0 {
				a.hintUnseen(ctx, s.api, ops.Filter{Topic: q.Topic, TenantID: q.TenantID})
			}
			keys := blockedKeys{Keys: found.Keys, paging: paging{More: found.More}}
			return a.print(keys, func() { a.printKeys(keys) })
		})
	}
	c.Flags().StringVar(&q.Topic, "topic", "", "only of this topic")
	c.Flags().StringVar(&q.TenantID, "tenant", "", "only of this tenant")
	limitFlag(c, &q.Limit, 100, 1000)
	return c
}

func (a *app) printKeys(all blockedKeys) {
	printRows(a, "no key is blocked", "TOPIC|TENANT|KEY|WAITING|DEAD|FIRST DEAD EVENT|CREATED|CODE|ERROR", all.Keys,
		func(t *table, k ops.BlockedKey) {
			t.add(
				k.Topic,
				orDash(k.TenantID),
				short(k.Key),
				k.Waiting.String(),
				strconv.Itoa(k.Dead),
				k.Head.ID.String(),
				moment(k.Head.CreatedAt),
				orDash(k.Head.ErrorCode),
				orDash(short(k.Head.Error)),
			)
		})
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
		Short: "After a restore, or a failover that lost commits: number the events of each key from the table alone",
		Long: `reset is one step after a restore from a backup, or after a failover that lost commits: docs/deploy.md
has them all. Stop every process that publishes or relays, run reset, and start the processes. The next
event of each key then gets its number from the table alone. reset waits for open transactions that
publish.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := w.check(); err != nil {
				return err
			}
			return a.withOutbox(c, func(ctx context.Context, s *session) error {
				n, err := a.countKeys(ctx, s.db)
				if err != nil {
					return s.db.withTables(ctx, kinds[0], a.schema, a.prefix, err)
				}
				if !a.json {
					a.sayf("reset: %s\n", many(n, "key"))
				}
				if w.dryRun {
					return a.print(keysReset{DryRun: true, Keys: n, At: a.now().UTC()}, func() {})
				}
				ask := "the services that publish are stopped? reset " + many(n, "key")
				if err := a.confirm(ctx, w, a.tables(s.db, "outbox"), ask); err != nil {
					return err
				}
				if n, err = s.ob.ResetKeys(ctx, w.actor, w.reason); err != nil {
					return err
				}
				return a.print(keysReset{Keys: n, At: a.now().UTC()}, func() { a.sayf("%d keys reset\n", n) })
			})
		},
	}
	w.flags(c)
	w.dryRunFlag(c)
	return c
}
