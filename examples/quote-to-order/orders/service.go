package orders

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/contract"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/orders/ent"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/orders/ent/order"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/orders/ent/orderline"
)

// Statuses of an order and its lines.
const (
	StatusCaptured  = "captured"  // an order
	StatusRequested = "requested" // a line
	StatusCompleted = "completed" // both
)

// ErrNoLine: the order has no such line.
var ErrNoLine = errors.New("no such line")

// Service is the business of orders. Each method runs in the transaction of its context, that of
// the inbox for example, or else in one of its own.
type Service struct {
	client   *ent.Client
	outbox   *entoutbox.Outbox
	commands *command.Commands
	effects  *command.Queue
	latency  *latency
}

// Captured is the result of the command CAPTURE_ORDER, which is stored.
type Captured struct {
	OrderID string `json:"order_id"`
}

// Capture is the command CAPTURE_ORDER: it makes an order of an accepted quote. eventID identifies
// the event that asks for it. The same event gets the stored result of the first call. Another
// event about the same quote gets the order that is there.
func (s *Service) Capture(ctx context.Context, tenant, eventID string, quote contract.QuoteAccepted,
) (result Captured, replayed bool, err error) {
	err = entoutbox.WithTx(ctx, s.client.Tx, func(ctx context.Context, _ *ent.Tx) error {
		result, replayed, err = command.RunTx(ctx, s.commands, nil, command.Command{
			Type: "CAPTURE_ORDER", Tenant: tenant, Key: command.EventKey("QuoteAccepted", eventID), Input: quote,
		}, func(ctx context.Context) (Captured, error) { return s.capture(ctx, tenant, quote) })
		return err
	})
	return result, replayed, err
}

func (s *Service) capture(ctx context.Context, tenant string, quote contract.QuoteAccepted) (Captured, error) {
	id := core.NewEventID()
	// A savepoint: the violated constraint ends it, and not the transaction around it.
	err := entoutbox.WithTx(ctx, s.client.Tx, func(ctx context.Context, tx *ent.Tx) error {
		return s.insert(ctx, tx, id, tenant, quote)
	})
	if !ent.IsConstraintError(err) {
		return Captured{id}, err
	}
	// uq_order_source_quote: the quote has its order. That is the answer, and not a failure.
	var before string
	err = entoutbox.WithTx(ctx, s.client.Tx, func(ctx context.Context, tx *ent.Tx) error {
		found, err2 := tx.Order.Query().Where(order.TenantID(tenant), order.SourceQuoteID(quote.QuoteID)).FirstID(ctx)
		if ent.IsNotFound(err2) {
			return err // it was another constraint
		}
		before = found
		return err2
	})
	return Captured{before}, err
}

// insert stores the order with its lines, and decides what follows: the event OrderCaptured, a
// request to the fulfilment system for each line, and a mail.
func (s *Service) insert(ctx context.Context, tx *ent.Tx, id, tenant string, quote contract.QuoteAccepted) error {
	now := time.Now().UTC()
	err := tx.Order.Create().SetID(id).SetTenantID(tenant).SetSourceQuoteID(quote.QuoteID).SetCustomer(quote.Customer).
		SetOpenLines(len(quote.Lines)).SetQuoteAcceptedAt(quote.AcceptedAt).SetCapturedAt(now).Exec(ctx)
	if err != nil {
		return err
	}
	lines := make([]*ent.OrderLineCreate, len(quote.Lines))
	for i, l := range quote.Lines {
		lines[i] = tx.OrderLine.Create().SetOrderID(id).SetLineNo(l.Line).SetSku(l.SKU).SetQuantity(l.Quantity).
			SetCents(l.Cents)
	}
	if err := tx.OrderLine.CreateBulk(lines...).Exec(ctx); err != nil {
		return err
	}
	if err := s.outbox.Publish(ctx, tx, core.Event{
		TenantID: tenant, AggregateType: "order", AggregateID: id,
		Type: "OrderCaptured", Data: contract.OrderCaptured{OrderID: id, QuoteID: quote.QuoteID, CapturedAt: now},
	}); err != nil {
		return err
	}
	for _, l := range quote.Lines {
		request := fulfilmentRequest{Tenant: tenant, OrderID: id, Line: l.Line, SKU: l.SKU, Quantity: l.Quantity}
		if err := s.enqueue(ctx, tenant, channelFulfilment, fmt.Sprint(id, ":", l.Line), request); err != nil {
			return err
		}
	}
	confirmation := mail{
		To: quote.Customer, Subject: "We have your order of quote " + quote.QuoteID, AcceptedAt: quote.AcceptedAt,
	}
	if err := s.enqueue(ctx, tenant, channelMail, "OrderCaptured:"+id+":"+quote.Customer, confirmation); err != nil {
		return err
	}
	return entoutbox.AfterCommit(ctx, tx, func() { s.latency.captured(time.Since(quote.AcceptedAt)) })
}

func (s *Service) enqueue(ctx context.Context, tenant, channel, key string, payload any) error {
	text, err := json.Marshal(payload)
	if err != nil {
		return err
	}
	_, _, err = s.effects.Enqueue(ctx, nil, command.Effect{ // nil: in the transaction of ctx
		Channel: channel, Tenant: tenant, Key: key, Payload: text, ContentType: "application/json",
	})
	return err
}

// Fulfilled completes a line, and the order with its last line. It changes nothing when the line is
// complete already.
func (s *Service) Fulfilled(ctx context.Context, tenant string, done contract.FulfilmentCompleted) error {
	return entoutbox.WithTx(ctx, s.client.Tx, func(ctx context.Context, tx *ent.Tx) error {
		now := time.Now().UTC()
		ofLine := tx.OrderLine.Query().Where(orderline.OrderID(done.OrderID), orderline.LineNo(done.Line),
			orderline.HasOrderWith(order.TenantID(tenant)))
		line, err := ofLine.Only(ctx)
		if ent.IsNotFound(err) {
			return fmt.Errorf("line %d of order %s: %w", done.Line, done.OrderID, ErrNoLine)
		}
		if err != nil {
			return err
		}
		// The condition decides, and not the line that was read: a message about it may be handled
		// at the same time.
		n, err := tx.OrderLine.Update().Where(orderline.ID(line.ID), orderline.Status(StatusRequested)).
			SetStatus(StatusCompleted).SetCompletedAt(now).Save(ctx)
		if err != nil || n == 0 {
			return err
		}
		// The row of the order is locked from here on, so one transaction sees the last line end.
		o, err := tx.Order.UpdateOneID(done.OrderID).AddOpenLines(-1).Save(ctx)
		if err != nil {
			return err
		}
		if o.OpenLines == 0 {
			if err := s.complete(ctx, tx, o, now); err != nil {
				return err
			}
		}
		return entoutbox.AfterCommit(ctx, tx, func() { s.latency.fulfilled(now.Sub(line.RequestedAt)) })
	})
}

func (s *Service) complete(ctx context.Context, tx *ent.Tx, o *ent.Order, now time.Time) error {
	if err := o.Update().SetStatus(StatusCompleted).SetCompletedAt(now).Exec(ctx); err != nil {
		return err
	}
	lines, err := tx.OrderLine.Query().Where(orderline.OrderID(o.ID)).All(ctx)
	if err != nil {
		return err
	}
	var cents int64
	for _, l := range lines {
		cents += int64(l.Quantity) * l.Cents
	}
	if err := tx.Invoice.Create().SetOrderID(o.ID).SetCents(cents).Exec(ctx); err != nil {
		return err
	}
	return s.outbox.Publish(ctx, tx, core.Event{
		TenantID: o.TenantID, AggregateType: "order", AggregateID: o.ID,
		Type: "OrderCompleted",
		Data: contract.OrderCompleted{OrderID: o.ID, QuoteID: o.SourceQuoteID, CompletedAt: now},
	})
}
