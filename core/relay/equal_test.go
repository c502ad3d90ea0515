package relay

import (
	"fmt"
	"testing"
)

// equal fails the test unless got is want. The rest says of what.
func equal[T comparable](t testing.TB, got, want T, format string, args ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(format, args...), got, want)
	}
}
