package walrelay

import (
	"slices"
	"testing"
	"time"
)

func TestLater(t *testing.T) {
	now := time.Now()
	due := func(e *event) bool { return !e.due.After(now) }
	var q later
	if _, ok := q.next(now); ok || q.take(due) != nil {
		t.Fatal("something is in an empty one")
	}
	key := &lane{}
	first := &event{due: now.Add(time.Second), lane: key}
	second := &event{due: now.Add(time.Minute)}
	accepted := &event{due: now.Add(time.Hour)}
	q.push(second)
	q.push(first)
	q.push(accepted)
	if d, ok := q.next(now); !ok || d != time.Second || !key.queued {
		t.Errorf("the next one is due in %s, want 1s; key queued %t", d, key.queued)
	}
	if got := q.take(due); got != nil {
		t.Errorf("took %v before they are due", got)
	}

	accepted.state = eventAnswered // the relay had published it after all
	now = now.Add(2 * time.Second)
	if d, ok := q.next(now); !ok || d != 0 {
		t.Errorf("the next one is due in %s, want now", d)
	}
	if got := q.take(due); !slices.Equal(got, []*event{first, accepted}) || key.queued {
		t.Errorf("took %v, want the one that is due and the one that was accepted; key queued %t", got, key.queued)
	}
	if d, ok := q.next(now); !ok || d != 58*time.Second {
		t.Errorf("the next one is due in %s, want 58s", d)
	}
}
