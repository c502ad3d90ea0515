package ops_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// Errors that differ only in ids, numbers and quoted texts are one failure.
func TestFingerprint(t *testing.T) {
	print := func(text string) string {
		e := ops.Event{ErrorCode: "permanent", Topic: "orders", Type: "order.placed", Error: text}
		return e.Fingerprint()
	}
	for _, same := range [][]string{
		{"attempt 1 of 3", "attempt 22 of 3"},
		{"order 018f2a3b-1c2d-7e3f-8a4b-5c6d7e8f9a0b is gone", "order 118F2A3B-1C2D-7E3F-8A4B-5C6D7E8F9A0C is gone"},
		{`field "a" of 'b' and ` + "`c`", `field "total" of 'order 7' and ` + "``"},
		{"at 0xdeadbeef", "at 0x1"},
		{"object 5f3a9c is locked", "object 77b0 is locked"},
		{"id 01ARZ3NDEKTSV4RRFFQ69G5FAV", "id 01BX5ZZKBKACTAV9WEVGEMMVRZ"},
		{"dial tcp 10.0.0.7:9092: refused", "dial tcp 10.0.12.8:9093: refused"},
		{"two  blanks\nand a line", "two blanks and a line"},
	} {
		if print(same[0]) != print(same[1]) {
			t.Errorf("%q and %q are two failures", same[0], same[1])
		}
	}
	seen := map[string]string{}
	for _, text := range []string{
		"refused", "connection refused", "field is missing", "bad face", "added", "dead beef", "a cafe",
		"10 of 20 failed", "10 failed", "",
	} {
		if other, ok := seen[print(text)]; ok {
			t.Errorf("%q and %q are one failure", text, other)
		}
		seen[print(text)] = text
	}
	one := ops.Event{ErrorCode: "a", Topic: "b", Type: "c", Error: "d"}
	for _, change := range []func(*ops.Event){
		func(e *ops.Event) { e.ErrorCode = "x" }, func(e *ops.Event) { e.Topic = "x" },
		func(e *ops.Event) { e.Type = "x" }, func(e *ops.Event) { e.Error = "x" },
		func(e *ops.Event) { e.ErrorCode, e.Topic = "ab", "" },
	} {
		other := one
		if change(&other); other.Fingerprint() == one.Fingerprint() {
			t.Errorf("%+v and %+v are one failure", one, other)
		}
	}
	if (&ops.Event{Topic: "orders"}).Fingerprint() != "" {
		t.Error("an event that did not fail has a fingerprint")
	}
}

func TestStatusNames(t *testing.T) {
	text, err := json.Marshal([]ops.Status{
		ops.StatusNew, ops.StatusDone, ops.StatusRetry, ops.StatusDead,
		ops.StatusDiscarded,
	})
	if want := `["new","done","retry","dead","discarded"]`; err != nil || string(text) != want {
		t.Errorf("%s %v, want %s", text, err, want)
	}
	var back []ops.Status
	if err := json.Unmarshal(text, &back); err != nil || len(back) != 5 || back[3] != ops.StatusDead {
		t.Errorf("%v %v", back, err)
	}
	if _, err := ops.ParseStatus("asleep"); err == nil || !strings.Contains(err.Error(), "discarded") {
		t.Errorf("an unknown name: %v", err)
	}
}

// other is a Repository that cannot be listed.
type other struct{ core.Repository }

func (other) CheckTx(context.Context, core.Tx) error { return nil }

func TestNewRefuses(t *testing.T) {
	if _, err := ops.New(nil); err == nil {
		t.Error("a nil Outbox was accepted")
	}
	ob, err := core.New(core.Config{Repository: other{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ops.New(ob); err == nil || !strings.Contains(err.Error(), "ops.Store") {
		t.Errorf("a Repository that is no Store: %v", err)
	}
}
