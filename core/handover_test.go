package core

import (
	"context"
	"errors"
	"testing"
)

func TestHandovers(t *testing.T) {
	var zero handovers
	if zero.full() || zero.noneLeft() || zero.unblock() {
		t.Fatal("a relay without an AsyncPublisher waits for places")
	}
	h := handovers{most: 16, mostBytes: 1000}
	h.events, h.bytes = 15, 999
	if h.full() {
		t.Error("full although one more event fits; it may exceed the bytes")
	}
	for _, full := range []handovers{
		{most: 16, mostBytes: 1000, events: 16}, {most: 16, mostBytes: 1000, events: 1, bytes: 1000},
	} {
		if full.blocked = true; !full.full() || full.unblock() || !full.blocked {
			t.Errorf("not full: %+v", full)
		}
	}

	// Workers that found no room are woken once, when some places are free.
	h.events, h.bytes = 16, 500
	h.blocked = true
	h.events--
	if h.unblock() {
		t.Error("woken for one free place of 16")
	}
	h.events--
	if !h.unblock() || h.unblock() {
		t.Error("not woken exactly once for two free places of 16")
	}
}

// Abandoned publishes keep their places once: as many again may be under way, and no more.
func TestHandoversWithoutAnswers(t *testing.T) {
	h := handovers{most: 4, mostBytes: 1000}
	for _, c := range []struct {
		left, places int
		noneLeft     bool
	}{{0, 4, false}, {4, 4, false}, {5, 3, false}, {7, 1, false}, {8, 0, true}, {9, -1, true}} {
		h.left = c.left
		if h.places() != c.places || h.noneLeft() != c.noneLeft || h.full() != c.noneLeft {
			t.Errorf("%d abandoned: %d places, none left: %t, full: %t", c.left, h.places(), h.noneLeft(), h.full())
		}
	}
	h.left, h.leftBytes = 1, 1500
	if h.full() || h.noneLeft() {
		t.Error("full although 500 bytes are left")
	}
	if h.bytes = 500; !h.full() || h.noneLeft() {
		t.Error("not full with 1500 abandoned bytes and 500 others of 2 * 1000")
	}
	if h.bytes, h.leftBytes = 0, 2000; !h.noneLeft() {
		t.Error("something is left although abandoned publishes hold twice the bytes")
	}
}

type asyncOnly struct{ Publisher }

func (asyncOnly) PublishAsync(context.Context, Delivery, func(string, error)) {}

// routes returns a Router to other for all topics but a.
func routes(other, a Publisher) *Router {
	router := NewRouter()
	router.Handle("a", a)
	if other != nil {
		router.HandleOther(other)
	}
	return router
}

func TestNewHandovers(t *testing.T) {
	single := PublisherFunc(func(context.Context, Delivery) error { return nil })
	many := asyncOnly{single}
	for _, c := range []struct {
		name       string
		publisher  Publisher
		async, all bool
	}{
		{"one call for each event", single, false, false},
		{"many at once", many, true, true},
		{"a router to both", routes(single, many), true, false},
		{"a router to many at once alone", routes(nil, many), true, true},
		{"a router in a router", routes(routes(many, single), single), true, false},
		{"a router to one call for each event", routes(single, single), false, false},
	} {
		want := handovers{}
		if c.async {
			want = handovers{most: 5, mostBytes: 100, all: c.all}
		}
		equal(t, newHandovers(&Config{Publisher: c.publisher, InFlight: 5, InFlightBytes: 100}), want, "%s", c.name)
	}
	router := routes(routes(many, single), single)
	if asyncOf(router, "a") != nil || asyncOf(router, "b") == nil || asyncOf(single, "b") != nil {
		t.Error("a topic is published by the publisher of another")
	}
}

// The worker of a handover is lost only while it is in the call of the publisher.
func TestHandoverIsLost(t *testing.T) {
	r := &relay{}
	r.life.publishes = context.Background()
	during := &handover{r: r}
	if !during.lose() {
		t.Error("a publish is abandoned in its call, and its worker is not lost")
	}
	r.crew = crew{size: 1, alive: 1, stuck: 1}
	if goOn := during.leave(); goOn || r.crew.stuck != 0 {
		t.Errorf("a worker that was replaced goes on: %t; %+v", goOn, r.crew)
	}
	after := &handover{r: r}
	if !after.leave() {
		t.Error("the worker of a call that returned does not go on")
	}
	if after.lose() {
		t.Error("a publish is abandoned after its call, and a worker is lost")
	}
}

// Only the first answer of the publisher counts.
func TestHandoverIsAnsweredOnce(t *testing.T) {
	r := &relay{}
	ctx, cancel := context.WithCancel(context.Background())
	r.life.publishes = ctx //nolint:fatcontext // its parent is context.Background
	refusal := errors.New("refused")
	h := &handover{r: r}
	h.answer("", refusal)
	cancel()
	h.answer("receipt", nil)
	if !errors.Is(h.p.err, refusal) || h.p.receipt != "" || h.p.stopped || h.p.ended.IsZero() {
		t.Errorf("the answer is %+v, want the first one", h.p)
	}
	h = &handover{r: r}
	h.answer("", context.Canceled)
	if !h.p.stopped {
		t.Error("a failure after the relay began to end does not count as stopped")
	}
	h = &handover{r: r}
	if h.answer("receipt", nil); h.p.stopped || h.p.receipt != "receipt" {
		t.Errorf("a success after the relay began to end: %+v", h.p)
	}
}
