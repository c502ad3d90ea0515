package inbox_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/inbox"
)

func TestOnlyNewer(t *testing.T) {
	w := newWorld(t, func(c *inbox.Config) { c.OnlyNewer = []string{"handler"} })
	deliver := func(id, seq, tenant, key string) {
		t.Helper()
		must(t, w.deliver(w.handler, event(t.Context(), id, "key_seq", seq, "tenant_id", tenant, "partition_key",
			key)))
	}
	deliver("new", "7", "a", "k")
	deliver("old", "6", "a", "k") // older than 7: stale
	deliver("old", "6", "a", "k") // the second time a duplicate
	deliver("other tenant", "1", "b", "k")
	deliver("other key", "1", "a", "l")
	deliver("newer", "8", "a", "k")
	deliver("no seq", "", "a", "k")
	deliver("no key", "1", "a", "")
	for id, n := range map[string]int{
		"new": 1, "old": 0, "other tenant": 1, "other key": 1, "newer": 1, "no seq": 1,
		"no key": 1,
	} {
		w.effect(id, n)
	}
	w.hears("stale", 1)
	w.hears("duplicate", 1)

	// A newer event that failed makes no other event stale.
	h, _ := w.times(1, errHandler)
	_ = w.deliver(h, event(t.Context(), "fails", "key_seq", "10", "tenant_id", "a", "partition_key", "k"))
	deliver("between", "9", "a", "k")
	w.effect("between", 1)
}

// An event that was redriven after newer ones had passed it has a new number. It still counts as
// old.
func TestOnlyNewerAfterARedrive(t *testing.T) {
	w := newWorld(t, func(c *inbox.Config) { c.OnlyNewer = []string{"handler"} })
	lane := func(id, seq string, more ...string) *message.Message {
		return event(t.Context(), id, append([]string{core.HeaderPartitionKey, "k", core.HeaderKeySeq, seq},
			more...)...)
	}
	for _, msg := range []*message.Message{
		lane("6", "6"), lane("5 redriven", "7", core.HeaderFirstKeySeq, "5"), lane("8", "8"),
		lane("9 redriven, nothing had passed it", "10", core.HeaderFirstKeySeq, "9"),
	} {
		must(t, w.deliver(w.handler, msg))
	}
	w.effect("5 redriven", 0)
	w.effect("9 redriven, nothing had passed it", 1)
	w.hears("stale", 1)
	w.hears("processed", 3)
}
