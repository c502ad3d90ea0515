package pgxoutbox

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// resultRows are rows of pgx as a core.Rows.
type resultRows struct {
	pgx.Rows
	end  func() error // closes what the rows are a part of; nil: nothing
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
	if r.plans == nil {
		r.plans, r.types = make([]pgtype.ScanPlan, len(dest)), make([]reflect.Type, len(dest))
	}
	for i, to := range dest {
		field := &fields[i]
		if id, ok := to.(pgtype.BytesScanner); ok && field.DataTypeOID == pgtype.UUIDOID &&
			field.Format == pgx.BinaryFormatCode {
			if err := id.ScanBytes(values[i]); err != nil {
				return fmt.Errorf("pgxoutbox: column %s: %w", field.Name, err)
			}
			continue
		}
		if typ := reflect.TypeOf(to); r.types[i] != typ {
			r.plans[i], r.types[i] = types.PlanScan(field.DataTypeOID, field.Format, to), typ
		}
		if err := r.plans[i].Scan(values[i], to); err != nil {
			return fmt.Errorf("pgxoutbox: column %s: %w", field.Name, err)
		}
	}
	return nil
}

// Err implements core.Rows.
func (r *resultRows) Err() error {
	err := r.Rows.Err()
	r.told = r.told || err != nil
	return err
}

// Close closes the rows. The answer behind the last row may say that the statement failed. So Close
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
