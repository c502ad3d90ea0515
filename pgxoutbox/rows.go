package pgxoutbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// resultRows are rows of pgx as a core.Rows.
type resultRows struct {
	pgx.Rows
	end  func() error // ends the transaction of the rows; nil: nothing
	told bool         // an error was returned

	plans []pgtype.ScanPlan
	types []reflect.Type
}

// Scan reads the row. The Scan of pgx would close the rows when a value does not fit.
func (r *resultRows) Scan(dest ...any) error {
	fields, values, types := r.FieldDescriptions(), r.RawValues(), r.TypeMap()
	switch {
	case values == nil || types == nil:
		return errors.New("pgxoutbox: Scan was called without a row")
	case len(dest) != len(values):
		return fmt.Errorf("pgxoutbox: the row has %d columns and Scan was given %d targets", len(values), len(dest))
	}
	for i, to := range dest {
		done, err := decode(&fields[i], values[i], to)
		if !done {
			err = r.plan(i, len(dest), &fields[i], to).Scan(values[i], to)
		}
		if err != nil {
			return fmt.Errorf("pgxoutbox: column %s: %w", fields[i].Name, err)
		}
	}
	return nil
}

// plan returns pgx's way to read column i of n.
func (r *resultRows) plan(i, n int, field *pgconn.FieldDescription, to any) pgtype.ScanPlan {
	if r.plans == nil {
		r.plans, r.types = make([]pgtype.ScanPlan, n), make([]reflect.Type, n)
	}
	if typ := reflect.TypeOf(to); r.types[i] != typ {
		r.plans[i], r.types[i] = r.TypeMap().PlanScan(field.DataTypeOID, field.Format, to), typ
	}
	return r.plans[i]
}

// decode reads the kinds of values that events have much of, faster than a plan of pgx does. done is
// false if pgx has to read the value. A text that the target has already is not copied: most rows
// of a claim have the same topic and type.
func decode(field *pgconn.FieldDescription, value []byte, to any) (done bool, err error) {
	switch to := to.(type) {
	case *string:
		if value == nil || field.DataTypeOID != pgtype.TextOID && field.DataTypeOID != pgtype.VarcharOID {
			return false, nil
		}
		if *to != string(value) {
			*to = string(value)
		}
		return true, nil
	case *int64:
		n, ok := integer(field, value)
		if ok {
			*to = n
		}
		return ok, nil
	case *int:
		n, ok := integer(field, value)
		if ok = ok && int64(int(n)) == n; ok {
			*to = int(n)
		}
		return ok, nil
	case *[]byte:
		if value != nil && !asBytes(field) {
			return false, nil
		}
		*to = bytes.Clone(value)
		return true, nil
	case pgtype.BytesScanner:
		if field.Format != pgx.BinaryFormatCode ||
			field.DataTypeOID != pgtype.UUIDOID && field.DataTypeOID != pgtype.ByteaOID {
			return false, nil
		}
		return true, to.ScanBytes(value)
	}
	return false, nil
}

// integer reads a whole number in the binary format.
func integer(field *pgconn.FieldDescription, value []byte) (n int64, ok bool) {
	if field.Format != pgx.BinaryFormatCode {
		return 0, false
	}
	switch {
	case field.DataTypeOID == pgtype.Int8OID && len(value) == 8:
		return int64(binary.BigEndian.Uint64(value)), true
	case field.DataTypeOID == pgtype.Int4OID && len(value) == 4:
		return int64(int32(binary.BigEndian.Uint32(value))), true
	case field.DataTypeOID == pgtype.Int2OID && len(value) == 2:
		return int64(int16(binary.BigEndian.Uint16(value))), true
	}
	return 0, false
}

// asBytes reports whether the bytes on the wire are the value.
func asBytes(field *pgconn.FieldDescription) bool {
	switch field.DataTypeOID {
	case pgtype.ByteaOID:
		return field.Format == pgx.BinaryFormatCode
	case pgtype.JSONBOID, pgtype.JSONOID:
		return field.Format == pgx.TextFormatCode
	}
	return false
}

// Err implements core.Rows.
func (r *resultRows) Err() error {
	err := r.Rows.Err()
	r.told = r.told || err != nil
	return err
}

// Close closes the rows. The answer behind the last row may be an error of the statement. So Close
// returns the error that ended the rows, unless Err has returned it before.
func (r *resultRows) Close() error {
	r.Rows.Close()
	err := r.Rows.Err()
	if r.end != nil {
		if ended := r.end(); err == nil {
			err = ended
		}
		r.end = nil
	}
	if r.told {
		return nil
	}
	r.told = err != nil
	return err
}
