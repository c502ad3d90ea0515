package capture

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Server keeps what a Capture has asked the database about itself. An adapter has one for each
// database. The zero value is ready for use. It is safe for use by several goroutines.
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

// isMariaDB tells MariaDB, which has RETURNING, from MySQL.
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
