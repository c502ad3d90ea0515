package once

import (
	"context"
	"errors"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

const (
	tries        = 10
	patience     = 20 * time.Second // a lock wait that times out has taken long already
	firstTxPause = 2 * time.Millisecond
	maxTxPause   = 200 * time.Millisecond
)

// RetryTx runs fn in a transaction of t, and runs the whole transaction again when it failed only because of others (core.Retryable): at most
// ten times and for twenty seconds, after a random pause that grows. Within a transaction that ctx carries already nothing is
// repeated, because on MariaDB a deadlock has rolled back all of it.
func RetryTx(ctx context.Context, t core.Transactor, fn func(ctx context.Context, tx core.Tx) error) error {
	if t == nil || fn == nil {
		return errors.New("once: RetryTx needs a Transactor and a function")
	}
	return retryTx(ctx, t, core.Retryable, fn)
}

func retryTx(ctx context.Context, t core.Transactor, again func(error) bool, fn func(context.Context, core.Tx) error) error {
	_, nested := core.TxFromContext(ctx)
	start, pause := time.Now(), firstTxPause
	for try := 1; ; try++ {
		err := t.RunInTx(ctx, fn)
		if err == nil || nested || try == tries || time.Since(start) > patience || ctx.Err() != nil || !again(err) {
			return err
		}
		if !sleep(ctx, rand50(pause)) {
			return err
		}
		pause = min(2*pause, maxTxPause)
	}
}
