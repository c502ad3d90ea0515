//go:build cgo

package cli_test

import _ "github.com/amacneil/dbmate/v2/pkg/driver/sqlite" // it is in C

func init() { dbmateOpensSQLite = true }
