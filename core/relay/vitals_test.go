package relay

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestVitals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := vitals{started: time.Now()}
		if d := v.since(&v.claimed); d >= 0 {
			t.Fatalf("a new relay claimed %s ago", d)
		}
		v.stamp(&v.claimed) // in the same instant as the start
		time.Sleep(time.Second)
		if d := v.since(&v.claimed); d <= time.Second-time.Millisecond || d > time.Second {
			t.Errorf("claimed %s ago, want a second", d)
		}
		if v.since(&v.turned) >= 0 || v.since(&v.published) >= 0 {
			t.Error("one time was noted for another")
		}
		time.Sleep(time.Minute)
		v.stamp(&v.claimed)
		v.stamp(&v.published)
		time.Sleep(time.Hour)
		if c, p := v.since(&v.claimed), v.since(&v.published); c != time.Hour || p != time.Hour {
			t.Errorf("claimed %s and published %s ago, want an hour", c, p)
		}
	})
}
