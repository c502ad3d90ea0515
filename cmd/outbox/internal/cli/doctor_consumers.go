package cli

import (
	"context"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
)

// consumers looks for messages that the consumers of an inbox have given up.
func (x *examination) consumers(ctx context.Context) error {
	there, err := x.db.hasTable(ctx, x.schema, "inbox_failure")
	if err != nil || !there {
		return err
	}
	c, err := x.api.Consumers(ctx)
	if err != nil {
		return err
	}
	for _, h := range c.Handlers {
		if h.Dead == 0 {
			continue
		}
		oldest, err := x.api.Messages(ctx, inbox.FailedQuery{
			Consumer: h.Consumer, Handler: h.Handler, Status: inbox.StatusDead, Limit: 1,
		})
		if err != nil {
			return err
		}
		found := fmt.Sprintf("dead messages: %s of %s; the oldest was received %s ago", counted(int64(h.Dead), h.More),
			short(handlerOf(h.Consumer, h.Handler)), age(h.OldestDead))
		if len(oldest.Events) > 0 {
			found += ": " + within(400, oldest.Events[0].Code+", "+oldest.Events[0].Text)
		}
		x.warn(found, "the handler has failed with them, and the inbox has given them up",
			fmt.Sprintf("see `outbox inbox list --status dead --consumer %s`, repair the cause, then `outbox inbox "+
				"redrive` and have them delivered again (a poison queue: `outbox inbox release`), or `outbox inbox "+
				"discard`", short(h.Consumer)))
	}
	x.otherwise("no message is dead")
	return nil
}

// keys looks for idempotency keys whose process disappeared.
func (x *examination) keys(ctx context.Context) error {
	there, err := x.db.hasTable(ctx, x.schema, x.keysPrefix+"idempotency_key")
	if err != nil || !there {
		return err
	}
	store, err := sqlonce.New(x.db.DB, sqlonce.Config{Dialect: x.db.dialect, Schema: x.schema, Prefix: x.keysPrefix})
	if err != nil {
		return err
	}
	scopes, err := store.Backlog(ctx, maxCounted)
	if err != nil {
		return err
	}
	for _, k := range scopes {
		if k.Abandoned > 0 {
			x.warn(fmt.Sprintf("abandoned keys: %s of %s; the lease of the oldest ended %s ago",
				counted(int64(k.Abandoned), k.More), short(k.Scope), age(k.Oldest)),
				"a process died or hung while it worked under them: nobody knows whether the work happened",
				"see `outbox idempotency list --status abandoned`; the next request with such a key does the work "+
					"again")
		}
	}
	x.otherwise("none is abandoned")
	return nil
}
