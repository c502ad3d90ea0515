package inbox_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
)

// ward is a consumer with a poison queue. It handles a message as soon as that is sent, and fails
// with the events that are ill.
type ward struct {
	*world
	ill     func(id string) bool
	away    bool // nobody consumes
	parked  []inbox.Message
	handled []string // ids, and payloads that are not {}
	// Errors of the broker, once.
	sendErr, ackErr error
}

const illness = "broken bones of patient 7"

func healthy(string) bool { return false }

func newWard(t *testing.T, ids ...string) *ward {
	t.Helper()
	w := &ward{world: newWorld(t), ill: func(string) bool { return true }}
	for _, id := range ids {
		key, _, _ := strings.Cut(id, ":")
		w.deliver(message(id, core.HeaderPartitionKey, key, "trace", "t-"+id))
	}
	w.ill, w.handled = healthy, nil
	w.wantParked(ids...)
	return w
}

// deliver handles a message, or parks it.
func (w *ward) deliver(msg inbox.Message) {
	res := w.in.Process(w.t.Context(), msg, func(ctx context.Context, tx core.Tx, m inbox.Message) error {
		id := m.Headers[core.HeaderEventID]
		for name := range m.Headers {
			if strings.Contains(name, "poisoned") || name == "Nats-Msg-Id" {
				w.t.Errorf("%s still has header %s", id, name)
			}
		}
		if w.ill(id) {
			return core.Permanent(errors.New(illness))
		}
		w.handled = append(w.handled, strings.TrimSuffix(id+" "+string(m.Payload), " {}"))
		return w.apply(ctx, tx, m)
	})
	if res.Action != inbox.Dead {
		return
	}
	msg.Headers = maps.Clone(msg.Headers)
	maps.Copy(msg.Headers, map[string]string{
		inbox.HeaderParkedReason: res.Err.Error(), inbox.HeaderParkedTopic: msg.Topic,
		inbox.HeaderParkedHandler: "invoice", inbox.HeaderParkedConsumer: "billing",
		inbox.HeaderParkedAt: "2026-11-29T20:00:00Z", "subscriber_poisoned": "s", "Nats-Msg-Id": "n",
	})
	msg.Topic = ""
	w.parked = append(w.parked, msg)
}

func (w *ward) Send(_ context.Context, topic string, msg inbox.Message) error {
	if err := w.sendErr; err != nil {
		w.sendErr = nil
		return err
	}
	if msg.Topic = topic; !w.away {
		msg.Raw = nil
		w.deliver(msg)
	}
	return nil
}

// opened is the queue of a ward as it is when it is opened.
type opened struct {
	*ward
	rest []inbox.Message
}

func (w *ward) open() *opened {
	q := &opened{ward: w}
	for i := range w.parked {
		w.parked[i].Raw = new(int) // tells copies apart
	}
	q.rest = slices.Clone(w.parked)
	return q
}

func (q *opened) Next(context.Context) (inbox.Message, error) {
	if len(q.rest) == 0 {
		return inbox.Message{}, io.EOF
	}
	msg := q.rest[0]
	q.rest = q.rest[1:]
	return msg, nil
}

func (q *opened) Ack(_ context.Context, msg inbox.Message) error {
	if err := q.ackErr; err != nil {
		q.ackErr = nil
		return err
	}
	q.parked = slices.DeleteFunc(q.parked, func(m inbox.Message) bool { return m.Raw == msg.Raw })
	return nil
}

func (w *ward) request() inbox.ReleaseRequest {
	return inbox.ReleaseRequest{From: w.open(), To: w, Actor: "ada", Reason: "the bones are set"}
}

func (w *ward) wantParked(ids ...string) {
	w.t.Helper()
	var got []string
	for _, m := range w.parked {
		got = append(got, m.Headers[core.HeaderEventID])
	}
	if !slices.Equal(got, ids) {
		w.t.Errorf("in the poison queue: %v, want %v", got, ids)
	}
}

func (w *ward) wantHandled(ids ...string) {
	w.t.Helper()
	if !slices.Equal(w.handled, ids) {
		w.t.Errorf("handled %v, want %v", w.handled, ids)
	}
}

func (w *ward) wantReleased(req inbox.ReleaseRequest, want inbox.Released, wantErr error) {
	w.t.Helper()
	got, err := w.in.Release(w.t.Context(), req)
	if !reflect.DeepEqual(got, want) || !errors.Is(err, wantErr) {
		w.t.Errorf("%+v, %v; want %+v, %v", got, err, want, wantErr)
	}
}

func TestReleaseSendsParkedMessagesInTheirOrder(t *testing.T) {
	ids := []string{"a:1", "b:1", "a:2", "c:1", "a:3"}
	w := newWard(t, ids...)
	req, last := w.request(), inbox.Released{}
	req.Progress = func(r inbox.Released) { last = r }
	var before []string
	req.Before = func(_ context.Context, p inbox.Parked, payload []byte) error {
		if payload != nil || p.Topic != "orders" || p.At.IsZero() || !strings.Contains(p.Reason, illness) {
			t.Errorf("%+v, %q", p, payload)
		}
		before = append(before, p.Key.EventID)
		return nil
	}
	want := inbox.Released{Sent: 5, Processed: 5}
	w.wantReleased(req, want, nil)
	w.wantHandled(ids...)
	w.wantParked()
	if !reflect.DeepEqual(last, want) || !slices.Equal(before, ids) {
		t.Errorf("progress %+v, before %v", last, before)
	}
}

// A consumer that is still broken gets few messages, and the others stay where they are.
func TestReleaseStopsWhenAMessageIsParkedAgain(t *testing.T) {
	w := newWard(t, "a:1", "b:1", "c:1", "d:1", "e:1", "f:1", "g:1")
	w.ill = func(string) bool { return true }
	w.wantReleased(w.request(), inbox.Released{Sent: 1}, inbox.ErrParkedAgain)
	w.wantParked("b:1", "c:1", "d:1", "e:1", "f:1", "g:1", "a:1")
	w.ill = func(id string) bool { return id == "d:1" } // in the second wave
	got, err := w.in.Release(t.Context(), w.request())
	if got.Sent != 5 || !errors.Is(err, inbox.ErrParkedAgain) || !strings.Contains(err.Error(), illness) {
		t.Errorf("%+v, %v", got, err)
	}
	w.wantParked("g:1", "a:1", "d:1")
	w.ill = healthy
	w.wantReleased(w.request(), inbox.Released{Sent: 3, Processed: 3}, nil)
	for id, n := range w.effects {
		if n != 1 {
			t.Errorf("%d effects of %s", n, id)
		}
	}
}

// What is not selected keeps its place, and so does what follows it in its key.
func TestReleaseSelects(t *testing.T) {
	w := newWard(t, "a:1", "b:1", "a:2", "b:2", "c:1")
	req := w.request()
	req.Select = func(p inbox.Parked) bool { return p.Key.EventID != "a:1" }
	w.wantReleased(req, inbox.Released{Sent: 3, Processed: 3, Kept: 2, Behind: 1}, nil)
	w.wantHandled("b:1", "b:2", "c:1")
	w.wantParked("a:1", "a:2")
	req = w.request()
	req.Limit = 1
	w.wantReleased(req, inbox.Released{Sent: 1, Processed: 1}, nil)
	w.wantParked("a:2")
}

// The order of a key is that of one handler: messages of another handler or consumer hold nothing up.
func TestReleaseSelectsByHandler(t *testing.T) {
	w := newWard(t)
	for _, m := range [][2]string{{"e1", "invoice"}, {"e1", "charge"}, {"e2", "charge"}, {"e3", "invoice"}} {
		w.parked = append(w.parked, message("", core.HeaderEventID, m[0], core.HeaderPartitionKey, "k",
			inbox.HeaderParkedTopic, "orders", inbox.HeaderParkedHandler, m[1]))
	}
	w.parked = slices.Insert(w.parked, 0, message("", core.HeaderEventID, "e0", core.HeaderPartitionKey, "k",
		inbox.HeaderParkedTopic, "orders", inbox.HeaderParkedHandler, "charge", inbox.HeaderParkedConsumer, "shipping"))
	req := w.request()
	req.DryRun = true
	req.Select = func(p inbox.Parked) bool { return p.Key.Handler == "charge" }
	got, err := w.in.Release(t.Context(), req)
	if err != nil || got.Sent != 2 || got.Kept != 3 || got.Behind != 0 {
		t.Errorf("%+v %v", got, err)
	}
}

func TestReleaseInADryRunChangesNothing(t *testing.T) {
	w := newWard(t, "a:1", "b:1", "a:2", "done:1")
	key := inbox.Key{Consumer: "billing", Handler: "invoice", EventID: "done:1"}
	if n, err := w.in.Discard(t.Context(), []inbox.Key{key}, "ada", "hopeless"); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	req := inbox.ReleaseRequest{From: w.open(), DryRun: true}
	req.Select = func(p inbox.Parked) bool { return p.Key.EventID != "b:1" }
	got, err := w.in.Release(t.Context(), req)
	want := inbox.Released{Sent: 2, Done: 1, Kept: 1, Groups: []inbox.ReleaseGroup{
		{Handler: "invoice", Topic: "orders", Messages: 2, EventID: "a:1"},
	}}
	if err != nil || len(got.Groups) != 1 || !strings.Contains(got.Groups[0].Reason, "broken bones of patient <n>") {
		t.Fatalf("%+v, %v", got, err)
	}
	if got.Groups[0].Reason = ""; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	w.wantHandled()
	w.wantParked("a:1", "b:1", "a:2", "done:1")
	dead, err := w.in.ListDead(t.Context(), inbox.DeadQuery{})
	if len(dead) != 3 || err != nil {
		t.Errorf("%d dead, %v", len(dead), err)
	}
}

func TestReleaseSendsAnotherPayload(t *testing.T) {
	w := newWard(t, "a:1")
	req := w.request()
	req.Edit = func(p inbox.Parked) ([]byte, error) { return []byte(`{"total":1}`), nil }
	told := errors.New("no audit")
	req.Before = func(_ context.Context, p inbox.Parked, payload []byte) error {
		if string(payload) != `{"total":1}` || string(p.Message.Payload) != "{}" {
			t.Errorf("%q in place of %q", payload, p.Message.Payload)
		}
		return told
	}
	w.wantReleased(req, inbox.Released{}, told)
	w.wantParked("a:1")
	req.From, told = w.open(), nil
	w.wantReleased(req, inbox.Released{Sent: 1, Processed: 1}, nil)
	w.wantHandled(`a:1 {"total":1}`)
	w.wantParked()
}

// A payload that names another event is refused, because its message would be another one.
func TestReleaseRefusesThePayloadOfAnotherEvent(t *testing.T) {
	w := newWard(t, "a:1")
	delete(w.parked[0].Headers, core.HeaderEventID)
	w.parked[0].Headers[core.HeaderContentType] = "application/cloudevents+json"
	w.parked[0].Payload = []byte(`{"specversion":"1.0","id":"x","source":"/s","type":"t"}`)
	req := w.request()
	req.Edit = func(inbox.Parked) ([]byte, error) {
		return []byte(`{"specversion":"1.0","id":"y","source":"/s","type":"t"}`), nil
	}
	w.wantReleased(req, inbox.Released{}, inbox.ErrInvalidRequest)
	if len(w.parked) != 1 {
		t.Error("the message left the queue")
	}
}

// If Release ends before or after it has sent a message, each event is processed once.
func TestReleaseIsKilledBetweenItsSteps(t *testing.T) {
	w := newWard(t, "a:1", "a:2", "a:3")
	killed := errors.New("killed")
	w.sendErr = killed
	w.wantReleased(w.request(), inbox.Released{}, killed)
	w.wantParked("a:1", "a:2", "a:3")
	w.ackErr = killed
	w.wantReleased(w.request(), inbox.Released{Sent: 1}, killed)
	w.wantParked("a:1", "a:2", "a:3")
	w.wantReleased(w.request(), inbox.Released{Sent: 2, Processed: 2, Done: 1}, nil)
	w.wantParked()
	w.wantHandled("a:1", "a:2", "a:3")
}

func TestReleaseNeedsAConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, "a:1", "a:2")
		w.away = true
		began := time.Now()
		w.wantReleased(w.request(), inbox.Released{Sent: 1}, inbox.ErrNotHandled)
		if took := time.Since(began); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("it took %s", took)
		}
		w.wantParked("a:2")
	})
}

// A message that cannot be released stays. One whose event has ended is taken out.
func TestReleaseLeavesWhatItCannotRelease(t *testing.T) {
	w := newWard(t, "a:1")
	parked := func(headers ...string) {
		w.parked = append(w.parked, message("", headers...))
	}
	parked(core.HeaderEventID, "no topic")
	parked(inbox.HeaderParkedTopic, "orders")
	parked(core.HeaderEventID, "other", inbox.HeaderParkedTopic, "orders", inbox.HeaderParkedConsumer, "shipping")
	parked(core.HeaderEventID, "unknown", inbox.HeaderParkedTopic, "orders") // to the table
	w.wantReleased(w.request(), inbox.Released{Sent: 2, Processed: 2, Kept: 3}, nil)
	w.wantHandled("a:1", "unknown")
	w.wantParked("no topic", "", "other")
}

// A stop leaves everything where it is.
func TestReleaseEndsWithItsContext(t *testing.T) {
	w := newWard(t, "a:1", "a:2")
	ctx, stop := context.WithCancel(t.Context())
	req := w.request()
	req.Select = func(inbox.Parked) bool { stop(); return true }
	if got, err := w.in.Release(ctx, req); got.Sent != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", got, err)
	}
	w.wantParked("a:1", "a:2")
}

func TestReleaseRefusesIncompleteRequests(t *testing.T) {
	w := newWorld(t)
	_, err := w.in.Release(t.Context(), inbox.ReleaseRequest{Limit: -1, Wait: -1})
	if !errors.Is(err, inbox.ErrInvalidRequest) {
		t.Error(err)
	}
	for _, part := range []string{"From", "To", "Actor", "Reason", "Limit", "Wait"} {
		if !strings.Contains(err.Error(), "ReleaseRequest."+part+" ") {
			t.Errorf("%v does not say %s", err, part)
		}
	}
}
