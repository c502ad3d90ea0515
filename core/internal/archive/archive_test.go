package archive_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/archive"
)

var errFull = errors.New("the disk is full")

func caller(fn func(ctx context.Context, rows []int) error) *archive.Caller[int] {
	return &archive.Caller[int]{
		Name: "Config.Archive", Archive: fn, Grace: archive.Grace,
		Panicked: func(value any) error { return fmt.Errorf("panic: %v", value) },
	}
}

// However an archive ends, the caller gets an error that names it, and the next call begins.
func TestCall(t *testing.T) {
	for name, c := range map[string]struct {
		fn   func(context.Context, []int) error
		want string
	}{
		"good":   {func(context.Context, []int) error { return nil }, ""},
		"error":  {func(context.Context, []int) error { return errFull }, "Config.Archive: the disk is full"},
		"panic":  {func(context.Context, []int) error { panic("of it") }, "Config.Archive: panic: of it"},
		"goexit": {func(context.Context, []int) error { runtime.Goexit(); return nil }, "Config.Archive: panic: <nil>"},
		"polite": {func(ctx context.Context, _ []int) error { <-ctx.Done(); return ctx.Err() }, "deadline exceeded"},
		"late": {func(ctx context.Context, _ []int) error {
			<-ctx.Done()
			time.Sleep(archive.Grace / 2)
			return nil
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := caller(c.fn)
				for range 2 {
					start := time.Now()
					err := a.Call(t.Context(), []int{1})
					if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
						t.Errorf("%v, want %q", err, c.want)
					}
					if took := time.Since(start); took > archive.Timeout+archive.Grace {
						t.Errorf("it took %s", took)
					}
				}
			})
		})
	}
}

// A call that ignores its context is left alone, at the end of the caller's context or after
// Timeout. Until it returns, no other call begins.
func TestCallHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		hang := make(chan struct{})
		a := caller(func(context.Context, []int) error {
			if calls.Add(1) == 1 {
				<-hang
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		want := 3*time.Second + archive.Grace
		if err := a.Call(ctx, nil); !errors.Is(err, archive.ErrStuck) || time.Since(start) != want {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		start = time.Now()
		if err := a.Call(t.Context(), nil); !errors.Is(err, archive.ErrStuck) || time.Since(start) != 0 ||
			calls.Load() != 1 {
			t.Errorf("beside it: %v after %s, %d calls", err, time.Since(start), calls.Load())
		}
		close(hang)
		synctest.Wait()
		if err := a.Call(t.Context(), nil); err != nil || calls.Load() != 2 {
			t.Errorf("after it: %v, %d calls", err, calls.Load())
		}
	})
}
