package capture

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/inmemory"
)

// Answer has the rows that a statement returned.
type Answer inmemory.Rows

// ReadAll reads rows to their end and closes them. After an error the result has the rows before
// it.
func ReadAll(rows inmemory.Source) (*Answer, error) {
	a, err := inmemory.Read(rows)
	return (*Answer)(&a), err
}

// Replay returns the rows as *sql.Rows for code that reads nothing else. failed is the error after
// the last row, or nil. Call done after the rows have been read.
func (a *Answer) Replay(failed error) (rows *sql.Rows, done func(), err error) {
	return (*inmemory.Rows)(a).Replay(context.Background(), failed)
}

// part returns the columns from one to another, for the same rows.
func (a *Answer) part(from, to int) *Answer {
	p := &Answer{Columns: a.Columns[from:to], Rows: make([][]any, len(a.Rows))}
	if a.Types != nil {
		p.Types = a.Types[from:to]
	}
	for i, row := range a.Rows {
		p.Rows[i] = row[from:to]
	}
	return p
}

// plain makes texts and integers of the bytes that the text protocol of MySQL gives for them, so
// that they can be bound again: bytes would be compared without the column's character set.
func (a *Answer) plain() {
	for i := range a.Types {
		typ := a.Types[i].DatabaseTypeName()
		text := strings.Contains(typ, "CHAR") || strings.Contains(typ, "TEXT") || strings.Contains(typ, "DECIMAL") ||
			typ == "ENUM" || typ == "SET"
		number := strings.Contains(typ, "INT")
		for _, row := range a.Rows {
			b, ok := row[i].([]byte)
			switch {
			case !ok:
			case text:
				row[i] = string(b)
			case number:
				if n, err := strconv.ParseInt(string(b), 10, 64); err == nil {
					row[i] = n
				} else if n, err := strconv.ParseUint(string(b), 10, 64); err == nil {
					row[i] = n
				}
			}
		}
	}
}

// Server caches answers of the database about itself. An adapter has one for each database. The
// zero value is ready for use. It is safe for use by several goroutines.
type Server struct {
	mu      sync.Mutex
	asked   bool
	mariaDB bool
	uniques map[string]uniques // of each table
}

type uniques struct {
	all []unique
	at  time.Time
}

// unique is a unique key that is not the primary key.
type unique struct {
	name    string
	columns []string // in lower case
	whole   bool     // of whole columns, not of prefixes or expressions
}

// quoted returns the key with its columns as a text has them.
func (u unique) quoted() *unique {
	q := unique{name: u.name, columns: make([]string, len(u.columns))}
	for i, column := range u.columns {
		q.columns[i] = "`" + column + "`"
	}
	return &q
}

// isMariaDB reports whether the server is MariaDB, which has RETURNING, and not MySQL.
func (v *Server) isMariaDB(ctx context.Context, s Session) (bool, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.asked {
		return v.mariaDB, nil
	}
	a, err := s.Read(ctx, "SELECT VERSION()", nil)
	if err != nil {
		return false, err
	}
	v.asked, v.mariaDB = true, strings.Contains(textOf(a.Rows[0][0]), "MariaDB")
	return v.mariaDB, nil
}

// others returns the unique keys of a table besides the primary key. The answer is kept for a
// minute.
func (v *Server) others(ctx context.Context, s Session, table string) ([]unique, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if u, ok := v.uniques[table]; ok && time.Since(u.at) < time.Minute {
		return u.all, nil
	}
	a, err := s.Read(ctx, "SHOW INDEX FROM "+table+" WHERE Non_unique = 0 AND Key_name <> 'PRIMARY'", nil)
	if err != nil {
		return nil, err
	}
	at := func(row []any, column string) any { return row[slices.Index(a.Columns, column)] }
	var all []unique
	for _, row := range a.Rows {
		name := textOf(at(row, "Key_name"))
		if len(all) == 0 || all[len(all)-1].name != name {
			all = append(all, unique{name: name, whole: true})
		}
		u := &all[len(all)-1]
		u.columns = append(u.columns, strings.ToLower(textOf(at(row, "Column_name"))))
		u.whole = u.whole && at(row, "Column_name") != nil && at(row, "Sub_part") == nil
	}
	if v.uniques == nil {
		v.uniques = map[string]uniques{}
	}
	v.uniques[table] = uniques{all, time.Now()}
	return all, nil
}

func textOf(v any) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(v)
}
