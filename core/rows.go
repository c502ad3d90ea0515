package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/cause"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// rows prepares the rows of all events, one for each destination, and reports the problems of all
// events.
func (o *Outbox) rows(ctx context.Context, events []Event) ([]NewRow, []string, ends, error) {
	traced := o.cfg.Tracer != nil && o.cfg.Tracer.Create != nil
	var created ends
	var extra map[string]string // headers of ctx
	if o.cfg.Headers != nil {
		extra = o.cfg.Headers(ctx)
	}
	by := cause.Of(ctx)
	rows := make([]NewRow, 0, len(events))
	ids := make([]string, 0, len(events))
	var problems []error
	for i := range events {
		ctx, extra, by := ctx, extra, by
		if own := events[i].ctx; own != nil {
			ctx, extra, by = own, nil, cause.Of(own)
			if o.cfg.Headers != nil {
				extra = o.cfg.Headers(own)
			}
		}
		e, err := o.prepare(ctx, events[i], extra, by)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		ids = append(ids, e.ID)
		topics := o.cfg.topicsOf(&e)
		o.suspicions.look(ctx, &e, topics, len(o.cfg.Routes[e.Type]) > 0)
		for _, topic := range topics {
			byLog := o.cfg.byLog(topic)
			if o.known != nil && !o.known[topic] && !byLog {
				problems = append(problems,
					fmt.Errorf("%w for topic %q of event type %q: add it to the Router, or to Config.Routes if "+
						"another process relays it",
						ErrNoRoute, errtext.Clip(topic, 64), errtext.Clip(e.Type, 64)))
				continue
			}
			row := NewRow{Event: e, ByLog: byLog}
			row.Event.Topic = topic
			if traced {
				created = append(created, o.create(ctx, &row.Event))
			}
			check := o.checkSize
			if byLog {
				check = checkByLog
			}
			if err := check(row.Event); err != nil {
				problems = append(problems, err)
				continue
			}
			if row.ID, err = NewRowID(e.ID, topic); err != nil {
				problems = append(problems, err)
				continue
			}
			if e.Key != "" && !e.Unordered {
				row.KeyID = NewKeyID(e.TenantID, topic, e.Key)
			}
			rows = append(rows, row)
		}
	}
	if len(problems) > 0 {
		return nil, nil, created, errors.Join(problems...)
	}
	if err := distinct(rows); err != nil {
		return nil, nil, created, err
	}
	return rows, ids, created, nil
}

// checkSize asks the publisher of this process whether it could publish e.
func (o *Outbox) checkSize(e Event) error {
	if sc, ok := o.cfg.Publisher.(SizeChecker); ok {
		if err := sc.CheckSize(e); err != nil {
			return fmt.Errorf(
				"%w: type %q for topic %q: %w",
				ErrInvalidEvent,
				errtext.Clip(e.Type, 64),
				errtext.Clip(e.Topic, 64),
				err,
			)
		}
	}
	return nil
}

// CheckContent returns the error with which Publish would refuse the event because of its fields:
// its payload, headers and texts, and the limits of this process's Publisher. Its topic must be
// set. It uses no database and calls neither the Codec nor the Tracer.
func (o *Outbox) CheckContent(e Event) error {
	prepared, err := o.prepare(context.Background(), e, nil, cause.Cause{})
	if err != nil {
		return err
	}
	return o.checkSize(prepared)
}

// distinct refuses the same event for the same topic twice in one call, without a query.
func distinct(rows []NewRow) error {
	if len(rows) < 2 {
		return nil
	}
	seen := make(map[RowID]bool, len(rows))
	for i := range rows {
		if seen[rows[i].ID] {
			return fmt.Errorf("%w: %s for topic %q is in the call twice", ErrDuplicateEvent, rows[i].Event.ID,
				errtext.Clip(rows[i].Event.Topic, 64))
		}
		seen[rows[i].ID] = true
	}
	return nil
}

// prepare fills in the empty fields, encodes the payload and reports every problem. The result
// shares no memory with e, because Payload is copied.
func (o *Outbox) prepare(ctx context.Context, e Event, extra map[string]string, by cause.Cause) (Event, error) {
	e.ctx, e.Eager = nil, false
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }

	if e.ID == "" {
		e.ID = NewEventID()
	} else if _, canonical, err := parseEventID(e.ID); err != nil {
		bad("%w", err)
	} else {
		e.ID = canonical
	}
	if e.Type == "" {
		if t, ok := e.Data.(EventTyper); ok {
			e.Type = t.EventType()
		}
	}
	if e.Type == "" && e.Data != nil {
		bad("type is empty: set it, or give %T a method EventType() string", e.Data)
	} else {
		checkText(bad, "type", e.Type, maxType, true)
	}
	checkText(bad, "aggregate type", e.AggregateType, maxAggType, false)
	checkText(bad, "aggregate id", e.AggregateID, maxAggID, false)
	checkText(bad, "tenant id", e.TenantID, maxTenant, false)
	checkText(bad, "topic", e.Topic, maxTopic, false)
	if e.Key == "" && e.AggregateID != "" {
		e.Key = e.AggregateID
		if e.AggregateType != "" {
			e.Key = e.AggregateType + "/" + e.AggregateID
		}
	}
	checkText(bad, "key", e.Key, maxKey, false)
	if e.AggregateVersion < 0 {
		bad("aggregate version %d is negative", e.AggregateVersion)
	}
	if e.SchemaVersion < 0 || e.SchemaVersion > 1<<31-1 {
		bad("schema version %d is out of range", e.SchemaVersion)
	}
	if e.Delay < 0 {
		bad("delay %s is negative", e.Delay)
	}
	if e.Delay > maxDelay {
		bad("delay %s is more than %s", e.Delay, maxDelay)
	}
	if e.Delay > 0 && e.Key != "" && !e.Unordered {
		bad("delay needs Unordered: it would hold up the key %q", errtext.Clip(e.Key, 64))
	}
	if e.OccurredAt.IsZero() {
		e.OccurredAt = time.Now()
	} else if y := e.OccurredAt.UTC().Year(); y < 1 || y > 9999 {
		bad("occurred at is in the year %d", y)
	}
	e.OccurredAt = e.OccurredAt.UTC().Truncate(time.Microsecond)

	e.Headers = withCause(mergeHeaders(bad, e.Headers, extra), by)

	switch {
	case e.Payload != nil:
		if e.Data != nil {
			bad("both Data and Payload are set")
		}
		e.Payload = append(make([]byte, 0, len(e.Payload)), e.Payload...)
	case e.Data != nil:
		b, contentType, err := o.cfg.Codec.Encode(ctx, e.Data)
		if err != nil {
			bad("encode data: %w", err)
		}
		e.Payload = b
		e.ContentType = cmp.Or(e.ContentType, contentType)
		e.Data = nil
	}
	checkText(bad, "content type", e.ContentType, maxContentType, false)
	if e.Payload == nil {
		e.Payload = []byte{}
	}
	if len(e.Payload) > o.cfg.MaxPayload {
		bad("payload has %d bytes, more than Config.MaxPayload %d: store it elsewhere and send a reference",
			len(e.Payload), o.cfg.MaxPayload)
	}
	if len(problems) > 0 {
		return e, errtext.Errorf("%w: type %q: %w", ErrInvalidEvent, errtext.Clip(e.Type, 64), errors.Join(problems...))
	}
	return e, nil
}

// create calls Tracer.Create for a row that is about to be inserted.
func (o *Outbox) create(ctx context.Context, e *Event) (end func(error)) {
	headers, end := o.cfg.Tracer.Create(ctx, *e)
	if len(headers) == 0 {
		return end
	}
	traced := *e
	problem := false
	traced.Headers = mergeHeaders(func(string, ...any) { problem = true }, headers, e.Headers)
	if !problem && o.checkSize(traced) == nil {
		e.Headers = traced.Headers
	}
	return end
}

// ends are the ends of the rows of one call of Publish.
type ends []func(error)

func (e ends) call(err error) {
	for _, end := range e {
		if end != nil {
			end(err)
		}
	}
}
