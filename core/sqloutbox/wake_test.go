package sqloutbox

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A watch hears of a change soon while there is traffic, and costs little without.
func TestPace(t *testing.T) {
	for name, p := range map[string]pace{"bell": bellPace, "file": filePace} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var number, probes, wakes atomic.Int64
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() {
					ended <- p.watch(ctx, func() (int64, error) {
						probes.Add(1)
						time.Sleep(50 * time.Microsecond)
						return number.Load(), nil
					}, func() { wakes.Add(1) })
				}()
				synctest.Wait()
				time.Sleep(time.Millisecond)
				synctest.Wait()
				if n := wakes.Swap(0); n != 1 {
					t.Fatalf("%d wake-ups at the start, want one", n)
				}
				for i := range 100 { // traffic
					number.Add(1)
					time.Sleep(5 * time.Millisecond)
					synctest.Wait()
					if n := wakes.Swap(0); n != 1 {
						t.Fatalf("change %d: %d wake-ups after 5 ms", i+1, n)
					}
				}
				probes.Store(0)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if n := wakes.Load(); n != 0 {
					t.Errorf("%d wake-ups without a change", n)
				}
				if n, most := probes.Load(), 500+int64(10*time.Second/p.longest); n > most || n < 20 {
					t.Errorf("%d probes in 10 s without a change, want 20 to %d", n, most)
				}
				time.Sleep(10 * time.Minute)
				probes.Store(0)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if n, most := probes.Load(), int64(10*time.Second/p.longest)+1; n > most {
					t.Errorf("%d probes in 10 s after ten minutes, want at most %d", n, most)
				}
				number.Add(1)
				time.Sleep(p.longest + time.Millisecond)
				synctest.Wait()
				if n := wakes.Load(); n != 1 {
					t.Errorf("%d wake-ups after a change", n)
				}
				stop()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		})
	}
}

// A slow database is probed less often.
func TestPaceOfASlowDatabase(t *testing.T) {
	if d := bellPace.next(0, 10*time.Millisecond); d < 100*time.Millisecond {
		t.Errorf("a probe of 10 ms is repeated after %s", d)
	}
}

// An error ends the watch, and its caller begins another one.
func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		n := 0
		err := bellPace.watch(t.Context(), func() (int64, error) {
			if n++; n == 3 {
				return 0, away
			}
			return 0, nil
		}, func() {})
		if !errors.Is(err, away) || n != 3 {
			t.Errorf("%v after %d probes", err, n)
		}
	})
}
