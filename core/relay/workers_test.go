package relay

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// Workers start only on demand, one in each place. A lost one is replaced, and the places of twice
// the crew are all.
func TestCrew(t *testing.T) {
	started := 0
	c := newCrew(&Config{Workers: 2}, nil, func() { started++ })
	want := func(what string, running, stuck, starts int) {
		t.Helper()
		if c.running != running || c.stuck != stuck || started != starts {
			t.Fatalf("%s: %d run, %d stuck, %d started; want %d, %d, %d", what, c.running, c.stuck, started, running,
				stuck, starts)
		}
	}
	want("at rest", 0, 0, 0)
	c.wake()
	want("an event", 1, 0, 1)
	c.wakeAll()
	c.wake()
	want("many events", 2, 0, 2)
	c.lose()
	want("first loss", 2, 1, 3)
	c.lose()
	want("second loss", 2, 2, 4)
	c.lose()
	want("third loss", 1, 3, 4)
	c.lose()
	want("fourth loss", 0, 4, 4)
	c.wakeAll()
	want("no place", 0, 4, 4)
	c.back()
	want("first return", 1, 3, 5)
	c.back()
	want("second return", 2, 2, 6)
	c.back()
	want("third return", 2, 1, 6)
	if c.rest(); !c.rest() {
		t.Fatal("a worker without an event does not wait")
	}
	if c.wake(); !<-c.more {
		t.Error("an event ends a worker")
	}
	want("an event for an idle worker", 2, 1, 6)
	c.thin()
	want("a pause", 2, 1, 6)
	if c.thin(); <-c.more {
		t.Error("a worker that is not needed goes on")
	}
	want("a longer pause", 1, 1, 6)
	c.rest()
	if c.close(); <-c.more {
		t.Error("a worker goes on at the end")
	}
	c.wake()
	c.wakeAll()
	c.back()
	want("the end", 0, 0, 6)
	if c.rest() {
		t.Error("a worker waits after the end")
	}
}

func TestCrewIsStuck(t *testing.T) {
	var zero crew
	if !zero.noneLeft() || zero.abandoned() != 0 {
		t.Fatal("a crew without workers can publish")
	}
	c := crew{size: 8}
	called, handed := &item{}, &item{handover: &handover{}}
	if c.noneLeft() || c.stuckMost(called) != 2 || c.stuckMost(handed) != 1 {
		t.Errorf("none left: %t; %d and %d may be stuck", c.noneLeft(), c.stuckMost(called), c.stuckMost(handed))
	}
	c.handovers = handovers{most: 100, mostBytes: 1000, left: 3}
	c.stuck = 2
	if c.stuckMost(handed) != 25 || c.abandoned() != 5 {
		t.Errorf("%d may be stuck, %d are", c.stuckMost(handed), c.abandoned())
	}
	if c.handovers.left = 200; !c.noneLeft() {
		t.Error("workers are left, and no place for what they publish")
	}
}

// Workers that found no place start again when a publish has ended, and an abandoned publish keeps a
// place of its own until it has ended.
func TestCrewFreesPlaces(t *testing.T) {
	started := 0
	c := newCrew(&Config{Workers: 2}, nil, func() { started++ })
	c.handovers = handovers{most: 2, mostBytes: 100, events: 2, bytes: 30, blocked: true}
	called := &item{dest: &destination{}, size: 5}
	a := &item{dest: &destination{}, size: 10, handover: &handover{}}
	b := &item{dest: &destination{}, size: 20, handover: &handover{}, timing: itemTiming{stuck: true}}
	if c.freePlace(called); c.handovers.events != 2 || c.handovers.bytes != 30 || started != 0 {
		t.Errorf("a call of another publisher frees a place: %+v", c.handovers)
	}
	if c.freePlace(a); c.handovers.blocked || started != 2 {
		t.Errorf("%d workers start for a free place: %+v", started, c.handovers)
	}
	if c.freePlace(b); c.handovers != (handovers{most: 2, mostBytes: 100, left: 1, leftBytes: 20}) {
		t.Errorf("after an abandoned publish: %+v", c.handovers)
	}
	if c.answeredLate(b); c.handovers != (handovers{most: 2, mostBytes: 100}) {
		t.Errorf("after its end: %+v", c.handovers)
	}
}

func TestCrewGoesOnWithTheNextSuspect(t *testing.T) {
	c := newCrew(&Config{Workers: 2}, nil, func() {})
	out, other := &item{}, &item{}
	c.queue.suspects.out = out
	if c.suspectDone(other); c.queue.suspects.out != out {
		t.Error("the end of another item lets the next suspect be published")
	}
	if c.suspectDone(out); c.queue.suspects.out != nil {
		t.Error("the end of a suspect does not let the next one be published")
	}
}

func TestItemIsStuck(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		state itemState
		since time.Duration
		stuck bool
	}{
		{itemPublishing, 2*time.Second - 1, false},
		{itemPublishing, 2 * time.Second, true},
		{itemAcked, time.Hour, false},
		{itemPublishing, -1, false}, // the last has not begun
	} {
		it := &item{state: c.state}
		if c.since >= 0 {
			it.timing.started = now.Add(-c.since)
		}
		equal(t, it.isStuck(now, time.Second), c.stuck, "%s for %s: stuck", c.state, c.since)
	}
}

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

type asyncOnly struct{ core.Publisher }

func (asyncOnly) PublishAsync(context.Context, core.Delivery, func(string, error)) {}

// routes returns a Router to other for all topics but a.
func routes(other, a core.Publisher) *core.Router {
	router := core.NewRouter()
	router.Handle("a", a)
	if other != nil {
		router.HandleOther(other)
	}
	return router
}

func TestNewHandovers(t *testing.T) {
	single := core.PublisherFunc(func(context.Context, core.Delivery) error { return nil })
	many := asyncOnly{single}
	for _, c := range []struct {
		name       string
		publisher  core.Publisher
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
		equal(t, newHandovers(&Config{InFlight: 5, InFlightBytes: 100}, c.publisher), want, "%s", c.name)
	}
	router := routes(routes(many, single), single)
	if asyncOf(router, "a") != nil || asyncOf(router, "b") == nil || asyncOf(single, "b") != nil {
		t.Error("a topic is published by the publisher of another")
	}
}

// The worker of a handover is lost only while it is in the call of the publisher.
func TestHandoverIsLost(t *testing.T) {
	r := newEngine(&outbox{cfg: &Config{Workers: 1}})
	during := &handover{r: r}
	if !during.lose() {
		t.Error("a publish is abandoned in its call, and its worker is not lost")
	}
	r.do(func(s *state) { s.crew.stuck = 1 })
	goOn := during.leave()
	r.do(func(s *state) {
		if goOn || s.crew.stuck != 0 {
			t.Errorf("a worker that was replaced goes on: %t; %+v", goOn, s.crew)
		}
	})
	after := &handover{r: r}
	if !after.leave() {
		t.Error("the worker of a call that returned does not go on")
	}
	if after.lose() {
		t.Error("a publish is abandoned after its call, and a worker is lost")
	}
}

// Of the answers of the publisher the first counts. A success after an error is an answer that came
// late, see TestLateAnswer.
func TestHandoverIsAnsweredOnce(t *testing.T) {
	r := &engine{}
	ctx, cancel := context.WithCancel(context.Background())
	r.life.publishes = ctx //nolint:fatcontext // its parent is context.Background
	refusal := errors.New("refused")
	h := &handover{r: r}
	h.answer("", refusal)
	cancel()
	h.answer("receipt", errors.New("another refusal"))
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

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 64 * time.Second // so that a context is shared for a second
		var d deadlines
		parent, cancel := context.WithCancel(t.Context())
		get := func() context.Context {
			t.Helper()
			now := time.Now()
			ctx := d.context(parent, now, timeout)
			end, ok := ctx.Deadline()
			if left := end.Sub(now); !ok || left > timeout || left < timeout-timeout/sharedPart {
				t.Errorf("a publish has %s of %s", left, timeout)
			}
			return ctx
		}
		first := get()
		time.Sleep(time.Second - 1)
		equal(t, get(), first, "two publishes that begin together have a timer each")
		time.Sleep(time.Nanosecond)
		second := get()
		if second == first {
			t.Fatal("a context is shared for too long")
		}
		if first.Err() != nil {
			t.Error("the publishes before end with the next context")
		}
		time.Sleep(timeout - time.Second)
		synctest.Wait()
		if !errors.Is(first.Err(), context.DeadlineExceeded) || second.Err() != nil {
			t.Errorf("at the end of the first: %v, %v", first.Err(), second.Err())
		}
		third := get()
		cancel()
		if !errors.Is(second.Err(), context.Canceled) || !errors.Is(third.Err(), context.Canceled) {
			t.Errorf("at the end of the relay: %v, %v", second.Err(), third.Err())
		}
	})
}
