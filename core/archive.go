package core

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// archiveTimeout bounds a cleanup with Retention.Archive.
	archiveTimeout = time.Minute
	// archiveGrace is how long Retention.Archive may go on after its context ended, and no longer
	// than a quarter of Config.ShutdownTimeout.
	archiveGrace = time.Second
)

// errArchiveStuck is wrapped by the errors of a call of Retention.Archive that was left alone.
var errArchiveStuck = errors.New("it has not returned although its context has ended")

// archiver calls Retention.Archive, one call at a time. The function belongs to the application: it
// may ignore the end of its context, and it must not keep the relay from ending.
type archiver struct {
	archive func(ctx context.Context, rows []ArchivedEvent) error
	grace   time.Duration
	busy    atomic.Bool // a call has not returned, perhaps one that was left alone
}

// call returns an error soon after ctx ended, whatever Retention.Archive does. Until a call that
// was left alone returns, each further one fails, so that no more than one goroutine is stuck.
func (a *archiver) call(ctx context.Context, rows []ArchivedEvent) error {
	if a.busy.Swap(true) {
		return fmt.Errorf("outbox: Retention.Archive: %w", errArchiveStuck)
	}
	result := make(chan error, 1)
	go func() {
		var err error
		returned := false
		defer func() {
			if !returned { // a panic, which must end no relay, or runtime.Goexit
				err = NewPanicError(recover())
			}
			if err != nil {
				err = fmt.Errorf("outbox: Retention.Archive: %w", err)
			}
			a.busy.Store(false)
			result <- err
		}()
		err = a.archive(ctx, rows)
		returned = true
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	grace := time.NewTimer(a.grace)
	defer grace.Stop()
	select {
	case err := <-result:
		return err
	case <-grace.C:
		return fmt.Errorf("outbox: Retention.Archive: %w", errArchiveStuck)
	}
}
