package httpbridge

import (
	"testing"
	"time"
)

// A short pause does not end a longer one that an answer to another request has asked for.
func TestTheLongerPauseCounts(t *testing.T) {
	t.Parallel()
	var paused throttle
	paused.pause("https://a.example", time.Hour)
	paused.pause("https://a.example", time.Second)
	if left := paused.left("https://a.example"); left < time.Minute {
		t.Errorf("%s are left of an hour", left)
	}
}
