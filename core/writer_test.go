package core

import (
	"testing"
	"time"
)

func TestWriterIsWoken(t *testing.T) {
	var zero writer
	zero.wake() // does not block
	if zero.abandoned() || zero.marks.len() != 0 {
		t.Fatal("a new writer is abandoned, or has a mark")
	}
	w := newWriter(&Config{})
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
	w := newWriter(&Config{})
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
	equal(t, at(delay/2, 50, true, false), delay/2, "time to a full batch")
	if got := at(delay/2, 0, false, false); got != -1 {
		t.Errorf("after the batch, nothing is written in %s", got)
	}

	// After a failure, a full batch must not end the pause. The end of the relay does.
	w.failures, w.due = 1, begun.Add(time.Second)
	if got := at(delay, 50, true, false); got != time.Second {
		t.Errorf("after a failure, a full batch is written after %s, want %s", got, time.Second)
	}
	equal(t, at(delay, 50, true, true), delay, "time to the last try")
}

// The writer is woken when a batch begins, so that it waits for the rest, and when it is full.
func TestWriterWaitsForBatches(t *testing.T) {
	w := newWriter(&Config{MarkBatch: 3, ClaimBatch: 5, ColdEvents: 100})
	woken := func() bool {
		select {
		case <-w.kick:
			return true
		default:
			return false
		}
	}
	for _, c := range []struct {
		path  Path
		marks int // of that path alone
		batch int
	}{{PathHot, 6, 3}, {PathCold, 8, 5}} {
		w.marks = marks{}
		for n := 1; n <= c.marks; n++ {
			w.addAck(&item{state: itemAcked, path: c.path})
			if full := n >= c.batch; w.batchWaits() != full || woken() != (full || n == 1) {
				t.Errorf("path %s: mark %d: a batch waits: %t", c.path, n, w.batchWaits())
			}
		}
	}
	w.marks = marks{}
	for range 2 {
		w.addAck(&item{state: itemAcked, path: PathHot})
		w.addAck(&item{state: itemAcked, path: PathCold})
	}
	if woken(); w.batchWaits() {
		t.Error("two marks of each path are a batch")
	}
	if w.add(&item{state: itemFailed, path: PathHot}); !woken() || w.batchWaits() || w.marks.len() != 5 {
		t.Error("a failure wakes nobody, or counts as an acknowledgement")
	}
}
