package gorm_test

import (
	"database/sql/driver"
	"fmt"
	"testing"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// binaryID is a key as UUID packages have it: bytes in Go, bytes or text in the database, text in
// messages.
type binaryID [4]byte

func (id binaryID) String() string { return fmt.Sprintf("id-%x", [4]byte(id)) }

func (id binaryID) Value() (driver.Value, error) { return id[:], nil }

func (id *binaryID) Scan(v any) error {
	copy(id[:], v.([]byte))
	return nil
}

func (binaryID) GormDataType() string { return "bytes" }

// valuerID has no text form except its stored value.
type valuerID struct{ n int64 }

func (id valuerID) Value() (driver.Value, error) { return id.n, nil }

func (id *valuerID) Scan(v any) error { id.n = v.(int64); return nil }

func (valuerID) GormDataType() string { return "int" }

func TestGORMAggregateIDFromPrimaryKey(t *testing.T) {
	t.Parallel()
	type textual struct {
		ID binaryID `gorm:"primaryKey"`
		N  int
	}
	type valued struct {
		ID valuerID `gorm:"primaryKey;autoIncrement:false"`
	}
	type binary struct {
		ID []byte `gorm:"primaryKey"`
	}
	type composite struct {
		Shop string `gorm:"primaryKey"`
		No   int    `gorm:"primaryKey;autoIncrement:false"`
	}
	type pointers struct {
		Shop *binaryID `gorm:"primaryKey"`
		No   *valuerID `gorm:"primaryKey;autoIncrement:false"`
	}
	type without struct{ Name string }

	g := openGORM(t, testdb.SQLite(t), gormOptions{})
	fixture.NoError(t, g.AutoMigrate(&textual{}, &valued{}, &binary{}, &composite{}, &pointers{}, &without{}))
	event := []core.Event{{Type: "stored"}}
	gormoutbox.On(g.ob, func(core.Op, *textual) []core.Event { return event })
	gormoutbox.On(g.ob, func(core.Op, *valued) []core.Event { return event })
	gormoutbox.On(g.ob, func(core.Op, *binary) []core.Event { return event })
	gormoutbox.On(g.ob, func(core.Op, *composite) []core.Event { return event })
	gormoutbox.On(g.ob, func(core.Op, *pointers) []core.Event { return event })
	gormoutbox.On(g.ob, func(core.Op, *without) []core.Event { return event })
	for _, model := range []any{
		&textual{ID: binaryID{1, 2, 3, 4}}, &valued{ID: valuerID{7}}, &binary{ID: []byte{0xab, 0xcd}},
		&composite{Shop: "berlin", No: 3}, &composite{Shop: "paris"},
		&pointers{Shop: &binaryID{5, 6, 7, 8}, No: &valuerID{9}}, &pointers{Shop: &binaryID{5, 6, 7, 8}},
		&without{Name: "x"},
	} {
		fixture.NoError(t, g.Create(model).Error)
	}
	fixture.SameSet(t, "aggregate ids", g.Column(t, "aggregate_id"),
		[]string{"id-01020304", "7", "abcd", "berlin,3", "paris,0", "id-05060708,9", "id-05060708,", ""})
	fixture.NoError(t, g.Exec("DELETE FROM outbox_event").Error)
	fixture.NoError(t, g.Where("no = ?", 9).Delete(&pointers{}).Error)
	fixture.NoError(t, g.Where("name = ?", "x").Delete(&without{Name: "x"}).Error) // has no key
	fixture.NoError(t, g.Where("name = ?", "x").Delete(&without{}).Error)          // there is none any more
	fixture.SameSet(t, "aggregate ids", g.Column(t, "aggregate_id"), []string{"id-05060708,9", ""})
}

// An error that GORM translates says less than the error of the database. The outbox still knows
// whether the transaction is usable.
func TestGORMTranslatedError(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		fixture.NoError(t, g.Create(&gCoupon{Code: "X"}).Error)
		o := newOrder("placed")
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error {
			fixture.NoError(t, tx.Create(o).Error)
			err := tx.Transaction(func(tx *gorm.DB) error { return tx.Create(&gCoupon{Code: "X"}).Error })
			if g.db.Dialect != core.SQLite { // GORM does not know the errors of this driver
				fixture.WantError(t, err, gorm.ErrDuplicatedKey)
			}
			return publishAll(tx, "said")
		}))
		g.wantRows(t, "placed", "said")
		g.WantHot(t, "placed", "said")
		fixture.Must(t, len(o.Recorded()) == 0, "the event is still recorded after the commit")
	}, func(o *gormOptions) { o.gorm.TranslateError = true })
}
