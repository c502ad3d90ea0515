package relay

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestRecovery(t *testing.T) {
	told := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	var r recovery
	r.succeeded() // no goroutine waits
	a, b := r.news(), r.news()
	if told(a) || told(b) {
		t.Fatal("news of a success before it was asked for")
	}
	r.succeeded()
	if !told(a) || !told(b) {
		t.Error("a goroutine that waits is not told")
	}
	later := r.news()
	if told(later) {
		t.Error("an old success is news")
	}
	r.succeeded()
	if !told(later) {
		t.Error("the second success is no news")
	}
}

func TestRecoveryPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		news, stop := make(chan struct{}), make(chan struct{})
		begun := time.Now()
		if got := pause(time.Second, news, stop); got != pauseOver || time.Since(begun) != time.Second {
			t.Errorf("ended as %d after %s, want by time after a second", got, time.Since(begun))
		}
		begun = time.Now()
		time.AfterFunc(time.Millisecond, func() { close(news) })
		if got := pause(time.Second, news, stop); got != pauseCut || time.Since(begun) != time.Millisecond {
			t.Errorf("ended as %d after %s, want by the news", got, time.Since(begun))
		}
		close(stop)
		equal(t, pause(time.Second, nil, stop), pauseStopped, "how it ended")
	})
	last := time.Duration(0)
	for failures := 1; failures < 100; failures++ {
		d := errorPause(failures, 0.5)
		if d < last || d < basePause/2 || d > maxPause {
			t.Errorf("pause %d is %s, the one before it %s", failures, d, last)
		}
		last = d
	}
	equal(t, errorPause(100, 0.999), maxPause, "after 100 failures and much jitter")
}
