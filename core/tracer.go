package core

import (
	"context"
	"maps"
)

// Tracer has the callbacks for traces; module oteloutbox makes one for OpenTelemetry. Fields may be
// nil. Many goroutines call them, on the path of a publish or a commit. They must be fast, must not
// block and must not panic. Without a Tracer, tracing costs nothing. New fields may be added.
type Tracer struct {
	// Create is called by Outbox.Publish for each row, before the row is inserted. ctx is that of
	// the call, or of Event.WithContext. e is complete, its Topic included. It must be neither
	// changed nor kept. headers are added to those of the event and replace those of the same name.
	// If they do not fit into the limits of headers or of the publisher (SizeChecker), the event
	// goes without them, because a trace must not stop an event. end, if it is not nil, is called
	// once, when Publish returns, with the error of Publish. The transaction has not ended then.
	Create func(ctx context.Context, e Event) (headers map[string]string, end func(error))
	// Send is called before each call of the publisher. The publisher gets the context that Send
	// returns, which must be ctx or a child of it. headers are added to those of d, for this call
	// only. If one of them is no valid header, or the publisher says that they make the event too
	// large (SizeChecker), d goes without them. end, if it is not nil, is called once, when the
	// publisher has returned, with its receipt and its error.
	Send func(ctx context.Context, d Delivery, path Path) (
		sendCtx context.Context, headers map[string]string, end func(receipt string, err error))
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

// traced calls the publisher between Tracer.Send and its end.
func (o *Outbox) traced(ctx context.Context, it *item, late func(string, error)) (receipt string, err error) {
	d := it.delivery
	ctx, headers, end := o.cfg.Tracer.Send(ctx, d, it.path)
	if end != nil {
		returned := false
		defer func() {
			if !returned { // a panic goes on to publish
				err = errPanic
			}
			end(receipt, err)
		}()
		receipt, err = o.send(ctx, o.carrying(d, headers), late)
		returned = true
		return receipt, err
	}
	return o.send(ctx, o.carrying(d, headers), late)
}

// carrying returns d with the headers of a trace, or without them if d cannot carry them. Publish
// has checked the size of d, but not with headers that a relay adds.
func (o *Outbox) carrying(d Delivery, headers map[string]string) Delivery {
	if len(headers) == 0 {
		return d
	}
	traced := d
	traced.Headers = make(map[string]string, len(d.Headers)+len(headers))
	maps.Copy(traced.Headers, d.Headers)
	for name, value := range headers {
		if CheckHeader(name, value) != nil {
			return d
		}
		traced.Headers[name] = value
	}
	if o.checkSize(traced.Event) != nil {
		return d
	}
	return traced
}

// send calls the publisher. late is for a LatePublisher, and nil for any other.
func (o *Outbox) send(ctx context.Context, d Delivery, late func(string, error)) (receipt string, err error) {
	if lp, ok := publisherOf(o.cfg.Publisher, d.Topic).(LatePublisher); ok && late != nil {
		return lp.PublishLate(ctx, d, late)
	}
	if rp, ok := o.cfg.Publisher.(ReceiptPublisher); ok {
		return rp.PublishWithReceipt(ctx, d)
	}
	return "", o.cfg.Publisher.Publish(ctx, d)
}
