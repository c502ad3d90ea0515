// Package longtest marks the tests that take long.
package longtest

import (
	"os"
	"testing"
)

// Mark leaves the test to `make test-all`. `make test`, which people run all day, passes -short,
// and then Mark skips the test. A test of which `make test` runs a part asks testing.Short instead.
//
// Where `make test-all` repeats tests on other databases, it passes -short too, and names them in
// OUTBOX_TEST_DATABASES. Mark skips nothing there.
func Mark(t testing.TB) {
	t.Helper()
	if testing.Short() && os.Getenv("OUTBOX_TEST_DATABASES") == "" {
		t.Skip("takes long: make test-all runs it")
	}
}
