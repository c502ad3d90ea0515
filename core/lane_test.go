package core_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

func TestLanesAreDistinct(t *testing.T) {
	seen := map[core.Lane][3]string{}
	parts := []string{"", "a", "b", "ab", "A", "a ", "\x01", "aa"}
	for _, tenant := range parts {
		for _, topic := range parts {
			for _, key := range parts {
				l := core.NewLane(tenant, topic, key)
				if other, twice := seen[l]; twice {
					t.Errorf("%q and %q share a lane", other, [3]string{tenant, topic, key})
				}
				seen[l] = [3]string{tenant, topic, key}
				prefix := core.LanePrefix(topic)
				if l != core.NewLane(tenant, topic, key) || l.IsZero() || !bytes.Equal(l[:4], prefix[:]) {
					t.Errorf("lane %x of topic %q with prefix %x", l, topic, prefix)
				}
			}
		}
	}
}

func TestReplayLane(t *testing.T) {
	l, m := core.NewLane("", "t", "k"), core.NewLane("", "t", "l")
	r := core.ReplayLane(l)
	if r == l || r == core.ReplayLane(m) || r != core.ReplayLane(l) || !bytes.Equal(r[:4], l[:4]) {
		t.Errorf("lane %x, replay lane %x", l, r)
	}
	if !(core.Lane{}).IsZero() {
		t.Error("the zero lane is not zero")
	}
}

// The bytes of a lane and of a row id are in people's tables: they must never change.
func TestStoredBytesAreStable(t *testing.T) {
	l := core.NewLane("acme", "orders", "order/7")
	if got, want := fmt.Sprintf("%x", l), "1c168adbcee0f1be5ef7f2cd971a6963"; got != want {
		t.Errorf("lane %s, want %s", got, want)
	}
	if got, want := fmt.Sprintf("%x", core.ReplayLane(l)), "1c168adb62ac6a57acfba64f665a89fe"; got != want {
		t.Errorf("replay lane %s, want %s", got, want)
	}
	if got, want := rowID(t, "018f3e2a-7b1c-7def-8123-456789abcdef", "orders").String(),
		"018f3e2a-7b1c-8def-8a7a-600d26bce434"; got != want {
		t.Errorf("row id %s, want %s", got, want)
	}
}
