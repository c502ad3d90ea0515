package gorm_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// A copy of a model does not publish the events of the original. A value that was moved does not
// lose its events without an error.
func TestGORMCopyOfAModel(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		o := newOrder("placed")
		cp := *o
		fixture.WantError(t, g.Create(&cp).Error, core.ErrRecorderCopied)
		byValue := func() gOrder {
			var o gOrder
			o.Record(fixture.Happened{Name: "moved"})
			return o
		}
		batch := []gOrder{byValue()}
		fixture.WantError(t, g.Create(&batch).Error, core.ErrRecorderCopied)
		fixture.WantError(t, g.Session(&gorm.Session{}).Delete(cp).Error, core.ErrRecorderCopied)
		g.WantCount(t, "g_orders", 0)

		fixture.NoError(t, g.Create(o).Error)
		cp.ID = 0
		fixture.NoError(t, g.Create(&cp).Error) // no event waits any more
		batch[0].Adopt()
		fixture.NoError(t, g.Create(&batch).Error)
		g.wantRows(t, "placed", "moved")
		fixture.SameSet(t, "aggregate ids", g.Column(t, "aggregate_id"), []string{"1", "3"})
	})
}

// A closure that runs again works on a new copy of the model each time. The event is stored once.
func TestGORMCopyInRetriedClosure(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		order := newOrder("placed")
		for try := range 3 {
			err := g.Transaction(func(tx *gorm.DB) error {
				o := *order
				o.Adopt()
				if err := tx.Create(&o).Error; err != nil {
					return err
				}
				if try < 2 {
					return fixture.ErrNoStock
				}
				return nil
			})
			if try < 2 {
				fixture.WantError(t, err, fixture.ErrNoStock)
			} else {
				fixture.NoError(t, err)
			}
		}
		g.wantRows(t, "placed")
		fixture.Must(t, len(order.Recorded()) == 0, "the event is still recorded after the commit")
	})
}

// Updates gets the changes by value, so it gets a copy, whose events would be lost.
func TestGORMUpdatesFromAValue(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		o := &gOrder{Status: "new"}
		fixture.NoError(t, g.Create(o).Error)
		changes := newOrder("paid")
		fixture.WantError(t, g.Model(o).Updates(*changes).Error, core.ErrRecorderCopied)
		var stored gOrder
		fixture.NoError(t, g.First(&stored).Error)
		fixture.Must(t, stored.Status == "new", "the row is %q", stored.Status)
		fixture.NoError(t, g.Model(o).Updates(changes).Error)
		fixture.NoError(t, g.Model(o).Updates(gOrder{Version: 3}).Error) // has no recorded events
		g.wantRows(t, "paid")
	})
}

type (
	gNamed struct {
		ID     int64
		Events core.Recorder `gorm:"-"`
	}
	gBase struct {
		Note          string
		core.Recorder `gorm:"-"`
	}
	gEmbeds struct {
		ID   int64
		Base gBase `gorm:"embedded"`
	}
	gEmbedsPointer struct {
		ID   int64
		Base *gBase `gorm:"embedded"`
	}
	gAnonymous struct {
		ID int64
		gBase
	}
)

func TestGORMHiddenRecorderIsRefused(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.AutoMigrate(&gNamed{}, &gEmbeds{}, &gEmbedsPointer{}, &gAnonymous{}))
		for _, bad := range []any{&gNamed{ID: 1}, &gEmbeds{ID: 1}, &gEmbedsPointer{ID: 1}} {
			for name, err := range map[string]error{
				"create": g.Create(bad).Error, "save": g.Save(bad).Error,
				"delete": g.Delete(bad).Error,
			} {
				fixture.Check(t, errors.Is(err, core.ErrHiddenRecorder),
					"%s of %T: %v, want ErrHiddenRecorder", name, bad, err)
			}
		}
		a := &gAnonymous{}
		a.Record(fixture.Happened{Name: "seen"})
		fixture.NoError(t, g.Create(a).Error)
		g.wantRows(t, "seen")
	})
}

func TestGORMModelInLogs(t *testing.T) {
	t.Parallel()
	o := newOrder("placed")
	o.ID = 4711
	for _, verb := range []string{"%v", "%+v", "%s"} {
		if s := fmt.Sprintf(verb, *o); !strings.Contains(s, "4711") || strings.Contains(s, "event") {
			t.Errorf("%s prints %q", verb, s)
		}
	}
}

// GORM saves the loaded children of a parent along with it by an upsert, which changes each of them.
func TestGORMSavedAlong(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		var saw []string
		gormoutbox.On(g.ob, func(op core.Op, l *gLine) []core.Event {
			saw = append(saw, l.SKU+" "+op.String())
			return nil
		})
		first, second := &gOrder{Lines: []gLine{{SKU: "a"}, {SKU: "b"}}}, &gOrder{}
		fixture.NoError(t, g.Create(first).Error)
		fixture.NoError(t, g.Create(second).Error)
		fixture.SameSet(t, "On saw", saw, []string{"a upsert", "b upsert"})

		saw = nil
		first.Status = "paid"
		first.Lines = append(first.Lines, gLine{SKU: "c"})
		first.Lines[0].SKU = "a2" // GORM does not store it
		first.Lines[0].Record(fixture.Happened{Name: "renamed"})
		first.Lines[2].Record(fixture.Happened{Name: "added"})
		fixture.NoError(t, g.Save(first).Error)
		fixture.SameSet(t, "On saw", saw, []string{"a upsert", "b upsert", "c upsert"})
		g.wantRows(t, "added", "renamed")

		saw = nil
		fixture.NoError(t, g.Session(&gorm.Session{FullSaveAssociations: true}).Save(first).Error)
		all := []string{"a2 upsert", "b upsert", "c upsert"}
		fixture.SameSet(t, "On saw", saw, g.again(all, all...))
		g.wantRows(t, "added", "renamed")

		saw = nil
		second.Lines = []gLine{first.Lines[1]}
		second.Lines[0].Record(fixture.Happened{Name: "moved"})
		fixture.NoError(t, g.Save(second).Error)
		fixture.SameSet(t, "On saw", saw, g.again([]string{"b upsert"}, "b upsert"))
		g.wantRows(t, "added", "moved", "renamed")
	})
}

type (
	gCountry struct {
		Code          string `gorm:"primaryKey;size:8"`
		Name          string
		core.Recorder `gorm:"-"`
	}
	gCity struct {
		ID          int64
		CountryCode string `gorm:"size:8"`
		Country     gCountry
	}
)

// GORM does not change a parent that exists. It stores a parent that has a key and does not exist.
func TestGORMSavedAlongWithOwnKeys(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.AutoMigrate(&gCountry{}, &gCity{}))
		var saw []string
		gormoutbox.On(g.ob, func(op core.Op, c *gCountry) []core.Event {
			saw = append(saw, c.Code+" "+op.String())
			return nil
		})
		country := func(code string) gCountry { return gCountry{Code: code, Name: code} }
		fixture.NoError(t, g.Create(&gCity{Country: country("FR")}).Error)
		fixture.NoError(t, g.Create(&gCity{Country: country("FR")}).Error)
		cities := []gCity{{Country: country("FR")}, {Country: country("DE")}}
		cities[0].Country.Record(fixture.Happened{Name: "not.stored"})
		cities[1].Country.Record(fixture.Happened{Name: "stored"})
		fixture.NoError(t, g.Create(&cities).Error)
		fixture.SameSet(t, "On saw", saw, []string{"FR create", "DE create"})
		g.wantRows(t, "stored")
	})
}
