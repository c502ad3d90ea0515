package failgroup_test

import (
	"testing"

	"github.com/ormoutbox/ormoutbox/core/internal/failgroup"
)

// Errors that differ only in ids, numbers and quoted texts are one failure.
func TestOf(t *testing.T) {
	print := func(text string) string { return failgroup.Of("permanent", "orders", "order.placed", text) }
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
	one := [4]string{"a", "b", "c", "d"}
	for _, other := range [][4]string{
		{"x", "b", "c", "d"}, {"a", "x", "c", "d"}, {"a", "b", "x", "d"}, {"a", "b", "c", "x"}, {"ab", "", "c", "d"},
	} {
		if failgroup.Of(one[0], one[1], one[2], one[3]) == failgroup.Of(other[0], other[1], other[2], other[3]) {
			t.Errorf("%q and %q are one failure", one, other)
		}
	}
	if failgroup.Of("", "orders", "", "") != "" {
		t.Error("an event that did not fail has a group")
	}
}
