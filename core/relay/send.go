package relay

import (
	"context"
	"maps"

	"github.com/ormoutbox/ormoutbox/core"
)

// traced calls the publisher between Tracer.Send and its end.
func (o *outbox) traced(
	ctx context.Context,
	d core.Delivery,
	path core.Path,
	late func(string, error),
) (receipt string, err error) {
	ctx, headers, end := o.ob.Tracer.Send(ctx, d, path)
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
func (o *outbox) carrying(d core.Delivery, headers map[string]string) core.Delivery {
	if len(headers) == 0 {
		return d
	}
	traced := d
	traced.Headers = make(map[string]string, len(d.Headers)+len(headers))
	maps.Copy(traced.Headers, d.Headers)
	for name, value := range headers {
		if core.CheckHeader(name, value) != nil {
			return d
		}
		traced.Headers[name] = value
	}
	if c, ok := o.ob.Publisher.(core.SizeChecker); ok && c.CheckSize(traced.Event) != nil {
		return d
	}
	return traced
}

// send calls the publisher. late is for a LatePublisher, and nil for any other.
func (o *outbox) send(ctx context.Context, d core.Delivery, late func(string, error)) (receipt string, err error) {
	if lp, ok := publisherOf(o.ob.Publisher, d.Topic).(core.LatePublisher); ok && late != nil {
		return lp.PublishLate(ctx, d, late)
	}
	if rp, ok := o.ob.Publisher.(core.ReceiptPublisher); ok {
		return rp.PublishWithReceipt(ctx, d)
	}
	return "", o.ob.Publisher.Publish(ctx, d)
}
