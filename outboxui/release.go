package outboxui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// PoisonQueue is where a consumer parks the messages that it has given up.
type PoisonQueue struct {
	Consumer string // its Config.Consumer
	Name     string // as people know it, such as "billing_poison at kafka1:9092"
	// Open opens the queue as it is now, and a sender to the broker of its topics. The page calls
	// done when it needs both no longer. The packages of the bridges open the queues of their
	// brokers.
	Open func(ctx context.Context) (from inbox.Queue, to inbox.Sender, done func(), err error)
	// Cache is the consumer's, if it has one.
	Cache inbox.Cache
}

// poisonQueue returns the queue of a consumer, or nil if the page does not know it.
func (b *box) poisonQueue(consumer string) *PoisonQueue {
	i := slices.IndexFunc(b.PoisonQueues, func(q PoisonQueue) bool { return q.Consumer == consumer })
	if i < 0 {
		return nil
	}
	return &b.PoisonQueues[i]
}

// releases has this handler's latest release for each consumer.
type releases struct {
	mu  sync.Mutex
	all map[string]*release
}

// release is a release that runs or has ended. Its progress is in the memory of this process.
type release struct {
	Actor, Reason, Consumer string
	Began                   time.Time
	Running                 bool
	Done                    inbox.Released
	Err                     string // why it stopped
}

// begin takes the place of a release of that consumer. It returns false if one runs.
func (r *releases) begin(of release) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := r.all[of.Consumer]; last != nil && last.Running {
		return false
	}
	if r.all == nil {
		r.all = map[string]*release{}
	}
	r.all[of.Consumer] = &of
	return true
}

func (r *releases) note(consumer string, change func(*release)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r.all[consumer])
}

// of returns a copy of the latest release of a consumer, or nil.
func (r *releases) of(consumer string) *release {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.all[consumer]
	if last == nil {
		return nil
	}
	c := *last
	return &c
}

// Shape is the state of a release.
func (r *release) Shape() state {
	switch {
	case r.Running:
		return state{"run", "running"}
	case r.Err != "":
		return state{"warn", "stopped"}
	}
	return state{"ok", "done"}
}

// Said describes its progress.
func (r *release) Said() string {
	return fmt.Sprintf("%s delivered again, %s of them processed, %s taken out because they were processed "+
		"before, %s kept.",
		number(r.Done.Sent), number(r.Done.Processed), number(r.Done.Done), number(r.Done.Kept))
}

// releaseActs are the buttons of a consumer that has given up messages.
func (v *visit) releaseActs(consumer string, parked int) []act {
	q := url.Values{"consumer": {consumer}}
	if v.box.poisonQueue(consumer) == nil {
		why := "This page does not know the poison queue of " + cut(consumer, 60) +
			": `outbox inbox release` takes its address."
		return []act{v.button("Release 1 message…", "main", "release", q, why)}
	}
	one, all := url.Values{"consumer": {consumer}, "limit": {"1"}}, q
	acts := []act{v.button("Release 1 message…", "main", "release", one, "")}
	if parked > 1 {
		acts = append(acts, v.button("Release all…", "", "release", all, ""))
	}
	return acts
}

// releaseAsked is what a form asks to release.
type releaseAsked struct {
	consumer string
	limit    int
	events   []string
	wait     time.Duration
}

func (v *visit) releaseAsked() (a releaseAsked, err error) {
	a.consumer, a.events = v.form.Get("consumer"), v.form["event"]
	if text := strings.TrimSpace(v.form.Get("limit")); text != "" {
		if a.limit, err = strconv.Atoi(text); err != nil || a.limit < 0 {
			return a, refusal{http.StatusBadRequest, "“" + cut(text, 40) + "” is no number of messages."}
		}
	}
	if text := strings.TrimSpace(v.form.Get("wait")); text != "" {
		if a.wait, err = spanOf(text); err != nil || a.wait <= 0 {
			return a, refusal{http.StatusBadRequest, "“" + cut(text, 40) +
				"” is no duration: write one such as 30s or 5m."}
		}
	}
	return a, nil
}

func (a *releaseAsked) selects(p inbox.Parked) bool {
	return len(a.events) == 0 || slices.Contains(a.events, p.Key.EventID)
}

// proposeRelease proposes to deliver parked messages again.
func proposeRelease(v *visit) (*proposal, error) {
	a, err := v.releaseAsked()
	if err != nil {
		return nil, err
	}
	q := v.box.poisonQueue(a.consumer)
	if q == nil {
		return nil, refusal{http.StatusNotFound, "This page does not know the poison queue of that consumer."}
	}
	if last := v.box.releases.of(a.consumer); last != nil && last.Running {
		return nil, refusal{http.StatusConflict, last.Actor + " releases messages of " + cut(a.consumer, 60) +
			" now: wait for it."}
	}
	would, err := v.wouldRelease(q, a)
	if err != nil {
		return nil, err
	}
	if would.Sent+would.Done == 0 {
		return nil, refusal{http.StatusConflict, "The queue has no such message: somebody else has released it, " +
			"or it was never parked there."}
	}
	back := v.base + "consumers?" + url.Values{"consumer": {a.consumer}}.Encode()
	p := &proposal{
		Trail: []crumb{
			{Label: "Consumers", Href: v.base + "consumers"},
			{Label: a.consumer, Href: back},
			{Label: "release"},
		},
		Heading: "Release " + plural(would.Sent, "message") + " to " + cut(a.consumer, 60) + "?",
		Next: "Each is delivered to its topic again, one first, then four and more, and taken out of the queue " +
			"when the broker has it. " +
			"It stops if a message is given up again, and consumers that have processed one skip it.",
		Facts: []fact{
			{Name: "Queue", Text: q.Name}, {Name: "Messages", Text: number(would.Sent) + ", as of now"},
		},
		Note:   "Repair the consumer first, and let it run.",
		Button: "Release " + number(would.Sent) + v.environment(), Class: "main", Back: back, keep: v.on("consumer",
			"event", "limit"),
		Fields: []input{v.input("wait", "Wait for an outcome at most", "1m")}, Limits: "Limits of this run",
		Digest: digestOf([]string{fmt.Sprint(would.Sent, would.Done, would.Groups)}),
	}
	for _, g := range would.Groups[:min(5, len(would.Groups))] {
		p.Facts = append(p.Facts, fact{Name: "Given up", Text: number(g.Messages) + " of " + g.Handler + ": " +
			g.Reason})
	}
	if would.Done > 0 {
		p.Facts = append(p.Facts, fact{Name: "Only taken out", Text: number(would.Done) +
			", because they were processed or discarded before"})
	}
	p.Facts = append(p.Facts, fact{Name: "Undo", Text: "none: what is delivered stays delivered"})
	words := []string{"inbox", "release", "--consumer", a.consumer, "--from", "QUEUE"}
	if a.limit > 0 {
		words = append(words, "--limit", strconv.Itoa(a.limit))
	}
	for _, id := range a.events[:min(3, len(a.events))] {
		words = append(words, "--event", id)
	}
	p.Commands = []string{commandOf(append(words, "--reason", "WHY", "--actor", v.actor)...)}
	p.do = func(reason string) (*frame, error) {
		if !v.box.releases.begin(release{
			Actor: v.actor, Reason: reason, Consumer: a.consumer, Began: time.Now(),
			Running: true,
		}) {
			return nil, refusal{
				http.StatusConflict,
				"Somebody else was faster: messages of this consumer are being released.",
			}
		}
		v.release(q, a, reason)
		v.redirect(back)
		return nil, nil //nolint:nilnil // it was a redirect
	}
	return p, nil
}

func (v *visit) wouldRelease(q *PoisonQueue, a releaseAsked) (inbox.Released, error) {
	from, _, done, err := q.Open(v.ctx())
	if err != nil {
		return inbox.Released{}, refusal{http.StatusBadGateway, "The queue " + cut(q.Name, 120) +
			" cannot be opened: " + sentence(err)}
	}
	defer done()
	req := ops.ReleaseRequest{Consumer: a.consumer, Cache: q.Cache}
	req.From, req.Limit, req.Select, req.DryRun = from, a.limit, a.selects, true
	return v.api().Release(v.ctx(), req)
}

// release runs a release in this process. The answer waits a moment for it.
func (v *visit) release(q *PoisonQueue, a releaseAsked, reason string) {
	h, b, actor, ended := v.ui, v.box, v.actor, make(chan struct{})
	h.runs.Go(func() {
		defer close(ended)
		err := func() error {
			from, to, done, err := q.Open(h.ctx)
			if err != nil {
				return err
			}
			defer done()
			req := ops.ReleaseRequest{Consumer: a.consumer, Cache: q.Cache}
			req.From, req.To, req.Actor, req.Reason = from, to, actor, reason
			req.Limit, req.Wait, req.Select = a.limit, a.wait, a.selects
			req.Progress = func(d inbox.Released) { b.releases.note(a.consumer, func(r *release) { r.Done = d }) }
			all, err := b.API.Release(h.ctx, req)
			b.releases.note(a.consumer, func(r *release) { r.Done = all })
			return err
		}()
		b.releases.note(a.consumer, func(r *release) {
			r.Running = false
			if err != nil {
				r.Err = sentence(err)
			}
		})
		if err != nil && !errors.Is(err, context.Canceled) {
			h.cfg.Logger.Warn("outboxui: a release stopped", "consumer", ops.Printable(a.consumer), "error", err)
		}
		b.forget()
	})
	select {
	case <-ended:
	case <-v.ctx().Done():
	case <-time.After(stepWait):
	}
}
