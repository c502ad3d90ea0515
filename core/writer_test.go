package core

import (
	"testing"
	"time"
)

func TestWriterIsWoken(t *testing.T) {
	var zero writer
	zero.wake() // does not block
	if zero.abandoned() {
		t.Fatal("a new writer is abandoned")
	}
	w := newWriter()
	w.wake()
	w.wake() // before it has looked
	if len(w.kick) != 1 {
		t.Fatalf("woken %d times, want once for what it finds together", len(w.kick))
	}
	<-w.kick
	if w.wake(); len(w.kick) != 1 {
		t.Error("not woken again after it has looked")
	}
	if close(w.abandon); !w.abandoned() {
		t.Error("not abandoned")
	}
}

func TestWriterPlans(t *testing.T) {
	const delay = 10 * time.Millisecond
	begun := time.Now()
	w := newWriter()
	at := func(after time.Duration, waiting int, full, abandoned bool) time.Duration {
		w.plan(waiting, full, abandoned, begun.Add(after), delay)
		if w.due.IsZero() {
			return -1
		}
		return w.due.Sub(begun)
	}
	if got := at(0, 0, false, false); got != -1 {
		t.Fatalf("writes nothing in %s", got)
	}
	if got := at(0, 1, false, false); got != delay {
		t.Errorf("the first mark is written after %s, want %s", got, delay)
	}
	if got := at(delay/2, 2, false, false); got != delay {
		t.Errorf("a second mark moves the time of the first to %s", got)
	}
	if got := at(delay/2, 50, true, false); got != delay/2 {
		t.Errorf("a full batch is written after %s, want at once", got)
	}
	if got := at(delay/2, 0, false, false); got != -1 {
		t.Errorf("after the batch, nothing is written in %s", got)
	}

	// After a failure, a full batch must not end the pause. The end of the relay does.
	w.failures, w.due = 1, begun.Add(time.Second)
	if got := at(delay, 50, true, false); got != time.Second {
		t.Errorf("after a failure, a full batch is written after %s, want %s", got, time.Second)
	}
	if got := at(delay, 50, true, true); got != delay {
		t.Errorf("the last try comes after %s, want at once", got)
	}
}
