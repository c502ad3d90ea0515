package pgxoutbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// access is a pool of pgx as a sqloutbox.Pool.
type access struct{ pool *pgxpool.Pool }

var _ sqloutbox.Pool = access{}

// Exec implements sqloutbox.Querier.
func (a access) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	return querier{a.pool}.Exec(ctx, query, args...)
}

// Query implements sqloutbox.Querier.
func (a access) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	return querier{a.pool}.Query(ctx, query, args...)
}

// InTx implements sqloutbox.Pool.
func (a access) InTx(ctx context.Context, fn func(q sqloutbox.Querier) error) error {
	return pgx.BeginTxFunc(ctx, a.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return fn(querier{tx})
	})
}

// Reset closes the connections, for sqloutbox.Pool.
func (a access) Reset() { a.pool.Reset() }

// With implements sqloutbox.Pool.
func (a access) With(settings map[string]string) sqloutbox.Querier {
	return prepared{pool: a.pool, first: settingsText(settings)}
}

// settingsText returns a statement that makes settings for the rest of its transaction.
func settingsText(settings map[string]string) string {
	var b strings.Builder
	b.WriteString("SELECT ")
	for i, name := range slices.Sorted(maps.Keys(settings)) {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "set_config('%s', '%s', true)", quoted(name), quoted(settings[name]))
	}
	return b.String()
}

func quoted(s string) string { return strings.ReplaceAll(s, "'", "''") }

// querier is a pool, a connection or a transaction of pgx as a sqloutbox.Querier.
type querier struct {
	on interface {
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
		Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	}
}

func (q querier) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := q.on.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}

func (q querier) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	rows, err := q.on.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return &resultRows{Rows: rows}, nil
}

// prepared runs every statement behind another one, which prepares the transaction of both. They
// are sent together, up to one Sync. So they are one transaction without BEGIN and COMMIT, and cost
// one round trip.
type prepared struct {
	pool  *pgxpool.Pool
	first string
}

func (p prepared) Exec(ctx context.Context, query string, args ...any) (n int64, err error) {
	results, err := p.send(ctx, query, args)
	if err != nil {
		return 0, err
	}
	tag, err := results.Exec()
	if ended := results.Close(); err == nil {
		err = ended
	}
	return tag.RowsAffected(), err
}

func (p prepared) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	results, err := p.send(ctx, query, args)
	if err != nil {
		return nil, err
	}
	rows, err := results.Query()
	if err != nil {
		_ = results.Close() // the same error
		return nil, err
	}
	return &resultRows{Rows: rows, end: results.Close}, nil
}

// send sends both statements and reads the answer to the first.
func (p prepared) send(ctx context.Context, query string, args []any) (pgx.BatchResults, error) {
	var b pgx.Batch
	b.Queue(p.first)
	b.Queue(query, args...)
	results := p.pool.SendBatch(ctx, &b)
	if _, err := results.Exec(); err != nil {
		_ = results.Close() // the same error
		return nil, err
	}
	return results, nil
}

// resultRows are rows of pgx as a core.Rows.
type resultRows struct {
	pgx.Rows
	end  func() error // ends the batch or statement of the rows; nil: nothing
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
