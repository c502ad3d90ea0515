package pgxoutbox

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	connectTimeout = 10 * time.Second
	closeTimeout   = time.Second
)

// Listen returns a function for core.WakePolicy.Listen: a relay in a process of its own hears of a
// commit within a millisecond, and not at its next poll. It LISTENs on the channel, on a connection
// of its own, which is idle otherwise. sqloutbox.WakeChannel names the channel on which processes
// without a relay notify.
//
// cfg comes from pgx.ParseConfig. It may be that of the pool, unless PgBouncer is in between in
// transaction mode, which forgets LISTEN. Give Listen the address of PostgreSQL itself then; the
// services may go on to notify through PgBouncer. Listen uses a copy of cfg.
func Listen(cfg *pgx.ConnConfig, channel string) func(ctx context.Context, wake func()) error {
	if cfg != nil {
		cfg = cfg.Copy()
	}
	return func(ctx context.Context, wake func()) error {
		if cfg == nil {
			return errors.New("pgxoutbox: the *pgx.ConnConfig given to Listen is nil")
		}
		conn, err := connect(ctx, cfg)
		if err != nil {
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
			defer cancel()
			_ = conn.Close(ctx)
		}()
		// a text without parameters: it is never prepared
		if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return err
		}
		for { // the first wake says that it listens
			wake()
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return err
			}
		}
	}
}

func connect(ctx context.Context, cfg *pgx.ConnConfig) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return pgx.ConnectConfig(ctx, cfg)
}
