package crash_test

import (
	"os"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/crash"
)

// TestMain lets crash tests start this binary again as a process that they may end at any moment.
func TestMain(m *testing.M) {
	crash.Child()
	os.Exit(m.Run())
}
