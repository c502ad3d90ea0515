package watermillbridge

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
)

// delay reads the metadata of components/delay. The due time counts, because a message may have
// waited before it was published. The due time has whole seconds, so the duration is taken if the
// two agree.
func (r *reader) delay() time.Duration {
	until := r.time(delay.DelayedUntilKey)
	var exact time.Duration
	if s := r.md[delay.DelayedForKey]; s != "" {
		d, err := time.ParseDuration(s)
		r.check(delay.DelayedForKey, err)
		exact = d
	}
	left := exact
	if !until.IsZero() {
		left = time.Until(until)
		if ahead := exact - left; ahead > 0 && ahead <= time.Second {
			left = exact
		}
	}
	return max(left, 0)
}
