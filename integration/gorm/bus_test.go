package gorm_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

type busEvent struct{ Title string }

// busBook publishes in its own hook, through an event bus of Watermill, that it was stored.
type busBook struct {
	ID    int64
	Title string
}

func (busBook) TableName() string { return "bus_books" }

var busOf sync.Map // gorm.Plugin -> *cqrs.EventBus

func (b *busBook) AfterCreate(tx *gorm.DB) error {
	for _, plugin := range tx.Plugins {
		if bus, ok := busOf.Load(plugin); ok {
			return bus.(*cqrs.EventBus).Publish(tx.Statement.Context, busEvent{b.Title})
		}
	}
	return errors.New("no bus")
}

// An event bus of Watermill publishes in the transaction of GORM, in a model's hook and in the
// function of db.Transaction.
func TestGORMEventBus(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.AutoMigrate(&busBook{}))
		pub, err := watermillbridge.NewOutboxPublisher(g.ob.Outbox(), watermillbridge.OutboxConfig{})
		fixture.NoError(t, err)
		bus, err := cqrs.NewEventBusWithConfig(pub, cqrs.EventBusConfig{
			GeneratePublishTopic: func(p cqrs.GenerateEventPublishTopicParams) (string, error) {
				return p.EventName, nil
			},
			Marshaler: cqrs.JSONMarshaler{GenerateName: cqrs.StructName},
		})
		fixture.NoError(t, err)
		busOf.Store(g.ob, bus)
		failed := errors.New("no")
		for _, end := range []error{nil, failed} {
			err := g.Transaction(func(tx *gorm.DB) error {
				if err := tx.Create(&busBook{Title: "by a hook"}).Error; err != nil {
					return err
				}
				if err := bus.Publish(gormoutbox.Context(tx.Statement.Context, tx), busEvent{"by hand"}); err != nil {
					return err
				}
				return end
			})
			if !errors.Is(err, end) {
				t.Fatal(err)
			}
		}
		fixture.NoError(t, g.Create(&busBook{Title: "GORM's own transaction"}).Error)
		var payloads []string
		fixture.NoError(t, g.Raw("SELECT payload FROM outbox_event").Scan(&payloads).Error)
		slices.Sort(payloads)
		if want := []string{
			`{"Title":"GORM's own transaction"}`, `{"Title":"by a hook"}`,
			`{"Title":"by hand"}`,
		}; !slices.Equal(payloads, want) {
			t.Errorf("payloads %q, want %q", payloads, want)
		}
		if err := bus.Publish(gormoutbox.Context(t.Context(), g.DB), busEvent{"outside"}); !errors.Is(err,
			core.ErrNoTransaction) {
			t.Errorf("outside a transaction: %v", err)
		}
		if err := bus.Publish(context.Background(), busEvent{"outside"}); !errors.Is(err, core.ErrNoTransaction) {
			t.Errorf("outside a transaction: %v", err)
		}
	})
}
