package core

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Run and calls of Drain share the poller: their rounds follow each other.
func TestPollerRoundsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPoller()
		if err := p.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.begin(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a second round begins beside the first: %v", err)
		}
		began := make(chan error)
		go func() { began <- p.begin(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-began:
			t.Fatalf("a round begins before the end of the other: %v", err)
		default:
		}
		p.end()
		if err := <-began; err != nil {
			t.Fatal(err)
		}
		p.end()
		if err := p.begin(t.Context()); err != nil {
			t.Fatalf("no round begins after all have ended: %v", err)
		}

		var zero poller
		if err := zero.begin(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a round of the zero value begins: %v", err)
		}
	})
}

func TestPollerKindsTakeTurns(t *testing.T) {
	p := newPoller()
	var first []bool
	for range 4 {
		first = append(first, p.count())
	}
	if !slices.Equal(first, []bool{false, true, false, true}) || p.rounds != 4 {
		t.Errorf("ordered rows come first in rounds %v; %d were counted", first, p.rounds)
	}
}

func TestPollerGoesThroughTheKeys(t *testing.T) {
	now, p := time.Now(), newPoller()
	if after, ok := p.heads(now); !ok || !after.IsZero() {
		t.Fatalf("a new poller begins after %v, %t", after, ok)
	}
	page := func(next KeyID) bool {
		after, ok := p.heads(now)
		if !ok {
			t.Fatalf("rests after %v", after)
		}
		return p.page(after, next, 0, now, time.Hour)
	}
	if !page(KeyID{1}) {
		t.Error("no page follows the first of several")
	}
	if after, _ := p.heads(now); after != (KeyID{1}) {
		t.Errorf("goes on after %v", after)
	}
	if page(KeyID{}) {
		t.Error("a sweep follows one that found nothing")
	}
	if _, ok := p.heads(now); ok {
		t.Error("the keys do not rest after a sweep of several pages that found nothing")
	}
	if after, ok := p.heads(now.Add(2 * sweepRest)); !ok || !after.IsZero() {
		t.Errorf("after the rest: goes on after %v, %t", after, ok)
	}
	p.drains++
	if _, ok := p.heads(now); !ok || !p.draining() {
		t.Error("Drain waits for the rest of the keys")
	}
	p.drains--
	if _, ok := p.heads(now); ok || p.draining() {
		t.Error("the end of Drain ends the rest of the keys")
	}
	p.wakeKeys()
	if _, ok := p.heads(now); !ok {
		t.Error("keys that were passed over rest")
	}
}

// A kind of rows that had none is passed over for a while, until it is looked for again.
func TestIdleKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k idleKinds
		asked := 0
		var result stepResult
		var fails error
		step := k.unless(&k.ordered, func(context.Context) (stepResult, error) {
			asked++
			return result, fails
		})
		look := func() (wasAsked bool) {
			t.Helper()
			k.passed = false
			before := asked
			if _, err := step(t.Context()); !errors.Is(err, fails) && asked != before {
				t.Error(err)
			}
			if wasAsked = asked > before; wasAsked == k.passed {
				t.Errorf("asked: %t, passed over: %t", wasAsked, k.passed)
			}
			return wasAsked
		}
		for _, result = range []stepResult{
			{asked: true, rows: 1}, {asked: true, more: true}, {}, // the last: nothing was sent
		} {
			if first, second := look(), look(); !first || !second {
				t.Errorf("passed over after %+v", result)
			}
		}
		fails = errors.New("away")
		if first, second := look(), look(); !first || !second {
			t.Error("passed over after an error")
		}
		fails, result = nil, stepResult{asked: true}
		if !look() {
			t.Fatal("passed over before it was empty")
		}
		if time.Sleep(idlePause - 1); look() {
			t.Error("an empty kind is asked for again at once")
		}
		if time.Sleep(time.Nanosecond); !look() {
			t.Error("an empty kind is not asked for after its pause")
		}
		k.unordered = time.Time{}
		other := k.unless(&k.unordered, func(context.Context) (stepResult, error) { return stepResult{rows: 9}, nil })
		if res, _ := other(t.Context()); res.rows != 9 {
			t.Error("one kind is passed over because of the other")
		}
	})
}
