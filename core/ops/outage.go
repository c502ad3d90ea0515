package ops

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
)

// Outage returns an event of a topic whose last publish failed because the destination was down,
// and that waits for the next try. Nil: there is none, as far as the events tell.
//
// Relays store nothing about a destination but the failures of the events that they try: the first
// ones of keys, and of those without a key the ones that are due last. Outage looks at MaxLook
// waiting events from both ends. After the destination has come back, an event may be returned
// until a relay has published it.
func (a *API) Outage(ctx context.Context, topic string) (*Event, error) {
	// A failure that spent no attempt leaves a new event new, whatever its code is: the publisher
	// timed out, say, or no queue takes the topic. An event that was refused before says it by the
	// code alone.
	for _, f := range []Filter{
		{Topic: topic, ErrorCode: core.ClassUnavailable.String(), Statuses: []Status{StatusNew, StatusRetry}},
		{Topic: topic, ErrorCode: "timeout", Statuses: []Status{StatusNew}},
		{Topic: topic, ErrorCode: core.ClassUnroutable.String(), Statuses: []Status{StatusNew}},
		{Topic: topic, ErrorCode: core.ClassTransient.String(), Statuses: []Status{StatusNew}},
	} {
		e, err := a.failed(ctx, f)
		if e != nil || err != nil {
			return e, err
		}
	}
	return nil, nil
}

// failed returns an event that the filter selects, of the first or the last ones.
func (a *API) failed(ctx context.Context, f Filter) (*Event, error) {
	for _, newest := range []bool{false, true} {
		page, err := a.List(ctx, ListQuery{Filter: f, Newest: newest, Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(page.Events) > 0 {
			return &page.Events[0], nil
		}
		if !page.Truncated { // every waiting event was looked at
			break
		}
	}
	return nil, nil
}

// outage reports whether the last publish of an open event failed and spent no attempt. A refusal
// makes a new event one that is retried.
func (e *Event) outage() bool {
	switch e.ErrorCode {
	case "":
		return false
	case core.ClassUnavailable.String(), core.ClassKeyUnavailable.String():
		return true
	}
	return e.Status == StatusNew
}
