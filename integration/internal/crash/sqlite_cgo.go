//go:build cgo

package crash

import "github.com/mattn/go-sqlite3"

func init() { sqliteInC = &sqlite3.SQLiteDriver{} }
