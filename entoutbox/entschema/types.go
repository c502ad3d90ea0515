package entschema

import (
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// ID is an id of 16 bytes, of a row or a key, as each database stores it.
type ID core.RowID

// String returns the id as a UUID.
func (id ID) String() string { return core.RowID(id).String() }

// MarshalText returns the same as String, so that the id is a text in JSON.
func (id ID) MarshalText() ([]byte, error) { return core.RowID(id).MarshalText() }

// Value implements driver.Valuer.
func (id ID) Value() (driver.Value, error) { return id[:], nil }

// Scan implements sql.Scanner. It takes 16 bytes, or a UUID as text.
func (id *ID) Scan(src any) error {
	switch v := src.(type) {
	case []byte:
		if len(v) == len(id) {
			copy(id[:], v)
			return nil
		}
		return (*core.RowID)(id).UnmarshalText(v)
	case string:
		return (*core.RowID)(id).UnmarshalText([]byte(v))
	}
	return fmt.Errorf("entschema: a %T is no id", src)
}

// Time is an instant as each database stores it; SQLite stores microseconds since 1970. It is only
// for reading: on SQLite a predicate that compares a column with a Time would compare it with a
// text.
type Time struct{ time.Time }

// Value implements driver.Valuer.
func (t Time) Value() (driver.Value, error) { return t.UTC(), nil }

// Scan implements sql.Scanner.
func (t *Time) Scan(src any) error {
	switch v := src.(type) {
	case time.Time:
		t.Time = v.UTC()
	case int64:
		t.Time = time.UnixMicro(v).UTC()
	case []byte: // MySQL sends bytes when parseTime is not set
		return t.parse(string(v))
	case string:
		return t.parse(v)
	default:
		return fmt.Errorf("entschema: a %T is no time", src)
	}
	return nil
}

func (t *Time) parse(s string) (err error) {
	t.Time, err = time.Parse("2006-01-02 15:04:05.999999", s)
	return err
}
