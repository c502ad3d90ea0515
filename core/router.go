package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// Router is a Publisher that sends each event to the publisher of its topic. Brokers and in-process
// handlers can be mixed, and so can publishers of every kind: a relay finds an AsyncPublisher in
// it. The zero value has no routes. Add routes before use; after that it is safe for use by several
// goroutines.
//
//	r := core.NewRouter()
//	r.Handle("orders", kafka)
//	r.HandleFunc("search-index", updateIndex)
//
// The topics of an event are decided when it is inserted: by Event.Topic, else by Config.Routes of
// its type, else by its aggregate type, else by its type.
type Router struct {
	topics   map[string]Publisher
	fallback Publisher
}

// NewRouter returns a Router without routes.
func NewRouter() *Router { return &Router{} }

// Handle sends the events of a topic to p. The last call for a topic wins.
func (r *Router) Handle(topic string, p Publisher) {
	if r.topics == nil {
		r.topics = map[string]Publisher{}
	}
	r.topics[topic] = p
}

// HandleFunc sends the events of a topic to fn, in this process: the event is DONE when fn returns
// nil.
func (r *Router) HandleFunc(topic string, fn func(ctx context.Context, d Delivery) error) {
	r.Handle(topic, PublisherFunc(fn))
}

// HandleOther sends the events of all other topics to p, except for topics with ServedTopicPrefix,
// which are left to the process that names them. Without HandleOther, a relay leaves all other
// topics to other processes.
func (r *Router) HandleOther(p Publisher) { r.fallback = p }

// Topics implements TopicLister.
func (r *Router) Topics() []string {
	if r.fallback != nil {
		return nil
	}
	return r.NamedTopics()
}

// NamedTopics implements TopicNamer: the topics given to Handle, sorted.
func (r *Router) NamedTopics() []string {
	topics := make([]string, 0, len(r.topics))
	for t := range r.topics {
		topics = append(topics, t)
	}
	slices.Sort(topics)
	return topics
}

// Publish implements Publisher.
func (r *Router) Publish(ctx context.Context, d Delivery) error {
	_, err := r.PublishWithReceipt(ctx, d)
	return err
}

// PublishWithReceipt implements ReceiptPublisher.
func (r *Router) PublishWithReceipt(ctx context.Context, d Delivery) (string, error) {
	p := r.For(d.Topic)
	if p == nil { // never DEAD for this reason: another process may know the topic
		return "", Unavailable(fmt.Errorf("%w for topic %q", ErrNoRoute, d.Topic))
	}
	if rp, ok := p.(ReceiptPublisher); ok {
		return rp.PublishWithReceipt(ctx, d)
	}
	return "", p.Publish(ctx, d)
}

// CheckSize implements SizeChecker: it asks the publisher of the event's topic.
func (r *Router) CheckSize(e Event) error {
	if sc, ok := r.For(e.Topic).(SizeChecker); ok {
		return sc.CheckSize(e)
	}
	return nil
}

// For returns the publisher of a topic. Nil: there is none.
func (r *Router) For(topic string) Publisher {
	if p := r.topics[topic]; p != nil {
		return p
	}
	return r.fallback
}

// Publishers returns the publishers that were given to the router, in no order.
func (r *Router) Publishers() []Publisher {
	all := slices.Collect(maps.Values(r.topics))
	if r.fallback != nil {
		all = append(all, r.fallback)
	}
	return all
}

// check reports routes that lead nowhere.
func (r *Router) check() error {
	var problems []error
	for _, topic := range slices.Sorted(maps.Keys(r.topics)) {
		if p := r.topics[topic]; p == nil {
			problems = append(problems, fmt.Errorf("Router.Handle(%q) was given nil", errtext.Clip(topic, 64)))
		} else if err := checkPublisher(p); err != nil {
			problems = append(problems, fmt.Errorf("Router.Handle(%q): %w", errtext.Clip(topic, 64), err))
		}
	}
	if err := checkPublisher(r.fallback); err != nil {
		problems = append(problems, fmt.Errorf("Router.HandleOther: %w", err))
	}
	return errors.Join(problems...)
}

// checkPublisher refuses publishers that would fail for every event.
func checkPublisher(p Publisher) error {
	if p == nil {
		return nil
	}
	switch v := reflect.ValueOf(p); v.Kind() {
	case reflect.Func, reflect.Pointer, reflect.Map, reflect.Chan, reflect.Slice, reflect.Interface:
		if v.IsNil() {
			return fmt.Errorf("it is a nil %T: leave it out, or give a working publisher", p)
		}
	default:
	}
	if r, ok := p.(*Router); ok {
		return r.check()
	}
	return nil
}
