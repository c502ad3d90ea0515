package watermillbridge

import (
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
)

// answering is the publisher of a bridge to a broker that takes every message.
type answering struct{}

func (answering) Publish(string, ...*message.Message) error { return nil }
func (answering) Close() error                              { return nil }
func (answering) WaitsFor() error                           { return nil }

// Nothing is kept of a topic whose calls have returned, so there may be any number of topics.
func TestNoTopicIsKept(t *testing.T) {
	t.Parallel()
	p, err := NewPublisher(answering{}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		e := core.Event{ID: "1", Type: "t", Topic: fmt.Sprint("orders-", i)}
		if err := p.Publish(t.Context(), core.Delivery{Event: e}); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.topics) > 0 {
		t.Errorf("%d topics are kept", len(p.topics))
	}
}
