// Package archive calls the archives of applications: functions that get rows before they are
// deleted.
package archive

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// Timeout is how long a call may take before its context ends.
	Timeout = time.Minute
	// Grace is how long a call may go on after its context has ended.
	Grace = time.Second
	// Rows is how many rows most archives get at once.
	Rows = 100
)

// ErrStuck is wrapped by the errors of a call that was left alone.
var ErrStuck = errors.New("it has not returned although its context has ended")

// Caller calls an archive, one call at a time. The function belongs to the application: it may
// panic, or ignore the end of its context, and neither may keep the loop that cleans up.
type Caller[T any] struct {
	Name    string // the field of a configuration that has it, for errors
	Archive func(ctx context.Context, rows []T) error
	Grace   time.Duration
	// Panicked makes an error of what recover returned. It runs in the deferred function.
	Panicked func(value any) error

	busy atomic.Bool // a call has not returned; it may have been abandoned
}

// Call returns an error soon after ctx ended, and not later than Timeout and Grace after it began,
// whatever the archive does. Until a call that was left alone returns, each further one fails, so
// that no more than one goroutine is stuck.
func (c *Caller[T]) Call(ctx context.Context, rows []T) error {
	if c.busy.Swap(true) {
		return fmt.Errorf("%s: %w", c.Name, ErrStuck)
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	result := make(chan error, 1)
	go func() {
		var err error
		returned := false
		defer func() {
			if !returned { // a panic, or runtime.Goexit
				err = c.Panicked(recover())
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", c.Name, err)
			}
			c.busy.Store(false)
			result <- err
		}()
		err = c.Archive(ctx, rows)
		returned = true
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	grace := time.NewTimer(c.Grace)
	defer grace.Stop()
	select {
	case err := <-result:
		return err
	case <-grace.C:
		return fmt.Errorf("%s: %w", c.Name, ErrStuck)
	}
}
