//go:build cgo

package cli_test

import _ "github.com/amacneil/dbmate/v2/pkg/driver/sqlite" // dbmate's own driver is in C
