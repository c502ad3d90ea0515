package endtoend_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// e2eOrder is an entity that records its events.
type e2eOrder struct {
	ID            int64 `gorm:"primaryKey;autoIncrement:false"`
	Version       int64
	core.Recorder `gorm:"-"`
}

// e2eNote is an entity whose events an On function derives from the stored row.
type e2eNote struct {
	ID      uint64 `gorm:"primaryKey"`
	EventID string `gorm:"size:36"`
	Body    []byte
}

// e2eTold is the record that the business keeps of an event. It is written in the same transaction,
// without the outbox. In the end exactly the recorded events must have arrived.
type e2eTold struct {
	EventID string `gorm:"primaryKey;size:36"`
	Type    string `gorm:"size:128"`
	Tenant  string `gorm:"size:64"`
	Key     string `gorm:"size:255"`
	Ordered bool
	Version int64  // version of the entity, and so the place among the events of its key
	Headers string `gorm:"size:4000"`
	Payload []byte
}

const e2eOrders = 24

// producer is a goroutine of a service that changes entities.
type producer struct {
	db     *gorm.DB
	plugin *gormoutbox.Outbox
	topic  string
	random *rand.Rand

	committed, rolledBack, savepoints, repeated int
}

// change runs one transaction of a random kind, and repeats it as often as the database asks.
func (p *producer) change(ctx context.Context) error {
	kind := p.random.IntN(12)
	seed := p.random.Uint64()
	for try := 0; ; try++ {
		random := rand.New(rand.NewPCG(seed, 1)) // the same transaction at each try
		err := p.attempt(p.db.WithContext(ctx), kind, random)
		switch {
		case err == nil:
			p.committed++
			return nil
		case errors.Is(err, fixture.ErrBusiness):
			p.rolledBack++
			return nil
		case !retryable(err) || try == 30:
			return fmt.Errorf("transaction of kind %d: %w", kind, err)
		}
		p.repeated++
	}
}

func (p *producer) attempt(db *gorm.DB, kind int, random *rand.Rand) (err error) {
	defer func() {
		if v := recover(); v != nil {
			cause, ok := v.(error)
			if !ok || !errors.Is(cause, fixture.ErrBusiness) {
				panic(v)
			}
			err = cause
		}
	}()
	return db.Transaction(func(tx *gorm.DB) error {
		switch kind {
		case 0: // rolled back after everything is written
			return errors.Join(p.record(tx, random, 2), fixture.ErrBusiness)
		case 1: // a panic
			if err := p.record(tx, random, 1); err != nil {
				return err
			}
			panic(fixture.ErrBusiness)
		case 2, 3: // a savepoint is rolled back
			return p.undoPart(tx, random)
		case 4, 5: // several entities, one call
			return p.explicit(tx, random)
		case 6: // an On function derives the event
			return p.note(tx, random)
		default:
			return p.record(tx, random, 1+random.IntN(3))
		}
	})
}

// record changes one entity n times.
func (p *producer) record(tx *gorm.DB, random *rand.Rand, n int) error {
	o, err := lockOrder(tx, 1+random.Int64N(e2eOrders))
	if err != nil {
		return err
	}
	for range n {
		o.Version++
		e := p.event(random, o)
		o.Record(e)
		if err := tell(tx, e); err != nil {
			return err
		}
	}
	return tx.Save(o).Error
}

// undoPart changes an entity in savepoints, of which one is rolled back.
func (p *producer) undoPart(tx *gorm.DB, random *rand.Rand) error {
	o, err := lockOrder(tx, 1+random.Int64N(e2eOrders))
	if err != nil {
		return err
	}
	for _, undo := range []bool{false, true, false} {
		version := o.Version + 1
		err := tx.Transaction(func(tx *gorm.DB) error {
			e := p.event(random, &e2eOrder{ID: o.ID, Version: version})
			if err := gormoutbox.Publish(tx.Statement.Context, tx, e); err != nil {
				return err
			}
			if err := tell(tx, e); err != nil {
				return err
			}
			if err := tx.Model(&e2eOrder{ID: o.ID}).UpdateColumn("version", version).Error; err != nil {
				return err
			}
			if undo {
				return fixture.ErrBusiness
			}
			return nil
		})
		switch {
		case undo && errors.Is(err, fixture.ErrBusiness):
			p.savepoints++
		case undo || err != nil:
			return fmt.Errorf("savepoint: %w", errors.Join(err))
		default:
			o.Version = version
		}
	}
	return nil
}

// explicit changes two entities, in the order of their ids, and publishes both and an unordered
// event in one call.
func (p *producer) explicit(tx *gorm.DB, random *rand.Rand) error {
	first := 1 + random.Int64N(e2eOrders-1)
	second := first + 1 + random.Int64N(e2eOrders-first)
	var events []core.Event
	for _, id := range []int64{first, second} {
		o, err := lockOrder(tx, id)
		if err != nil {
			return err
		}
		o.Version++
		if err := tx.Save(o).Error; err != nil {
			return err
		}
		events = append(events, p.event(random, o))
	}
	loose := p.event(random, &e2eOrder{ID: first})
	loose.Key, loose.Type = "", "weather.changed"
	if random.IntN(2) == 0 {
		loose.Key, loose.Unordered = "loose", true
	}
	loose.AggregateType, loose.AggregateID = "", ""
	events = append(events, loose)
	if err := gormoutbox.Publish(tx.Statement.Context, tx, events...); err != nil {
		return err
	}
	return tell(tx, events...)
}

// note stores an entity from which mapNote makes an event.
func (p *producer) note(tx *gorm.DB, random *rand.Rand) error {
	n := &e2eNote{EventID: core.NewEventID(), Body: payload(random)}
	if err := tx.Create(n).Error; err != nil {
		return err
	}
	return tell(tx, mapNote(p.topic, n))
}

func mapNote(topic string, n *e2eNote) core.Event {
	return core.Event{
		ID: n.EventID, Type: "note.written", Topic: topic, AggregateType: "note", AggregateID: fmt.Sprint(n.ID),
		Payload: n.Body, AggregateVersion: 1,
	}
}

func lockOrder(tx *gorm.DB, id int64) (*e2eOrder, error) {
	o := &e2eOrder{}
	return o, tx.Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).First(o, "id = ?", id).Error
}

// event makes an event that differs from all others. Two tenants use the same keys.
func (p *producer) event(random *rand.Rand, o *e2eOrder) core.Event {
	e := core.Event{
		ID: core.NewEventID(), Type: "order.changed", Topic: p.topic, AggregateType: "order",
		AggregateID: fmt.Sprint(o.ID), AggregateVersion: o.Version, TenantID: fmt.Sprintf("tenant-%d", o.ID%2),
		SchemaVersion: 1 + random.IntN(3), Key: fmt.Sprintf("bestellung/ä%d", o.ID/2),
		OccurredAt: time.Now(), ContentType: "application/x-noise", Payload: payload(random),
	}
	if random.IntN(3) > 0 {
		e.Headers = map[string]string{
			"traceparent": fmt.Sprintf("00-%016x-01", random.Uint64()),
			"note":        "größer als ⌘, \"quoted\"",
		}
	}
	return e
}

// payload returns bytes that are not valid in a text format.
func payload(random *rand.Rand) []byte {
	n := random.IntN(200)
	switch random.IntN(20) {
	case 0:
		n = 0
	case 1:
		n = 20_000
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

// tell records the events that must arrive.
func tell(tx *gorm.DB, events ...core.Event) error {
	for _, e := range events {
		headers, err := json.Marshal(e.Headers)
		if err != nil {
			return err
		}
		key := e.Key
		if key == "" && e.AggregateID != "" {
			key = e.AggregateType + "/" + e.AggregateID
		}
		told := e2eTold{
			EventID: e.ID, Type: e.Type, Tenant: e.TenantID, Key: key, Ordered: key != "" && !e.Unordered,
			Version: e.AggregateVersion, Headers: string(headers), Payload: e.Payload,
		}
		if err := tx.Create(&told).Error; err != nil {
			return err
		}
	}
	return nil
}

// retryable reports whether the database asks to repeat the whole transaction.
func retryable(err error) bool {
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	switch {
	case errors.As(err, &pg):
		return pg.Code == "40001" || pg.Code == "40P01"
	case errors.As(err, &my):
		return my.Number == 1213 || my.Number == 1205 || my.Number == 1020
	}
	return errors.Is(err, core.ErrTxAborted)
}
