package quotes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

// ErrNotFound: the tenant has no such quote.
var ErrNotFound = errors.New("no such quote")

// Service is the business of quotes. Each method runs in the transaction of its context, that of an
// HTTP request or of the inbox, or else in one of its own.
type Service struct {
	tx      core.Transactor
	version int // schema version of QuoteAccepted
}

// Draft stores a quote.
func (s *Service) Draft(ctx context.Context, q *Quote) error {
	if err := q.check(); err != nil {
		return err
	}
	q.Status, q.AcceptedAt, q.OrderID = StatusDraft, nil, nil
	return s.inTx(ctx, func(db *gorm.DB) error { return db.Create(q).Error })
}

// Accept makes a draft accepted, and tells the order service. A quote that was accepted before
// stays as it is, and nobody is told again.
func (s *Service) Accept(ctx context.Context, tenant, id string) (q *Quote, err error) {
	err = s.inTx(ctx, func(db *gorm.DB) error {
		if q, err = find(db, tenant, id); err != nil {
			return err
		}
		if q.Status != StatusDraft {
			return nil
		}
		if err := q.accept(time.Now().UTC(), s.version); err != nil {
			return err
		}
		// The condition decides between two requests at once: one of them changes the row, and its
		// event is written with it.
		saved := db.Model(q).Where("status = ?", StatusDraft).Select("status", "accepted_at").Updates(q)
		if saved.Error == nil && saved.RowsAffected == 0 {
			q, err = find(db, tenant, id) // as the other request left it
			return err
		}
		return saved.Error
	})
	return q, err
}

// Ordered notes which order an accepted quote became. It changes nothing when it is told again.
func (s *Service) Ordered(ctx context.Context, tenant, id, orderID string) error {
	return s.inTx(ctx, func(db *gorm.DB) error {
		changed := db.Model(&Quote{}).Where("tenant_id = ? AND id = ? AND status = ?", tenant, id, StatusAccepted).
			Updates(map[string]any{"status": StatusOrdered, "order_id": orderID})
		if changed.Error != nil || changed.RowsAffected == 1 {
			return changed.Error
		}
		q, err := find(db, tenant, id)
		if err != nil {
			return err
		}
		if q.OrderID == nil || *q.OrderID != orderID {
			return fmt.Errorf("order %s of quote %s, which is %s: %w", orderID, id, q.Status, ErrTransition)
		}
		return nil
	})
}

func find(db *gorm.DB, tenant, id string) (*Quote, error) {
	q := &Quote{}
	err := db.Preload("Lines", func(db *gorm.DB) *gorm.DB { return db.Order("line") }).
		First(q, "tenant_id = ? AND id = ?", tenant, id).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return nil, fmt.Errorf("quote %s: %w", id, ErrNotFound)
	}
	return q, err
}

func (s *Service) inTx(ctx context.Context, fn func(db *gorm.DB) error) error {
	return s.tx.RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
		db, err := gormoutbox.FromContext(ctx)
		if err != nil {
			return err
		}
		return fn(db)
	})
}
