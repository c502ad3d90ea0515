package core_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

func rowID(t *testing.T, event, topic string) core.RowID {
	t.Helper()
	id, err := core.NewRowID(event, topic)
	must(t, err)
	return id
}

func TestNewEventIDSortsByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ids []string
		for range 3000 {
			ids = append(ids, core.NewEventID())
			time.Sleep(time.Microsecond) // advances the clock of the bubble
		}
		if !slices.IsSorted(ids) {
			t.Error("ids of different microseconds do not sort by time")
		}
		equal(t, len(slices.Compact(ids)), 3000, "an id came twice")
		for _, id := range ids {
			if id[14] != '7' || !strings.ContainsRune("89ab", rune(id[19])) || len(id) != 36 {
				t.Fatalf("%s is not a UUIDv7", id)
			}
		}
	})
}

// Events of one call get their ids within one microsecond. The ids sort in the order of the events.
func TestEventIDsOfOneMicrosecondSort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour) // so that no other test has made ids at this time
		var ids []string
		for range 1000 {
			ids = append(ids, core.NewEventID()) // the clock of the bubble stands still
		}
		if !slices.IsSorted(ids) {
			t.Error("ids of one microsecond do not sort in the order in which they were made")
		}
	})
}

func TestEventIDsOfOneInstantDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[string]bool{}
		for range 10000 {
			seen[core.NewEventID()] = true
		}
		equal(t, len(seen), 10000, "different ids of 10000")
	})
}

func TestRowIDIsOfEventAndTopic(t *testing.T) {
	const uuid, ulid = "018f3e2a-7b1c-7def-8123-456789abcdef", "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	for _, event := range []string{uuid, ulid} {
		a, b := rowID(t, event, "a"), rowID(t, event, "b")
		if a == b || a != rowID(t, event, "a") || a != rowID(t, strings.ToUpper(event), "a") ||
			a != rowID(t, strings.ToLower(event), "a") {
			t.Errorf("%s: a is %s, b is %s", event, a, b)
		}
		if s := a.String(); s[14] != '8' || !strings.ContainsRune("89ab", rune(s[19])) {
			t.Errorf("%s is not a UUIDv8", s)
		}
		first, last, err := core.RowIDRange(event)
		must(t, err)
		fresh, err := core.FreshRowID(event)
		must(t, err)
		other, err := core.FreshRowID(event)
		must(t, err)
		if fresh == other || fresh == a {
			t.Errorf("fresh ids %s and %s", fresh, other)
		}
		for _, id := range []core.RowID{a, b, fresh, other} {
			if bytes.Compare(first[:], id[:]) > 0 || bytes.Compare(id[:], last[:]) > 0 {
				t.Errorf("%s is not in the range of its event: %s to %s", id, first, last)
			}
		}
	}
	if got, want := rowID(t, uuid, "orders").String(), "018f3e2a-7b1c-8def-"; !strings.HasPrefix(got, want) {
		t.Errorf("%s does not begin with the event id %s", got, want)
	}
}

func TestRowIDOfTwoEventsDiffer(t *testing.T) {
	// The two ids share the first eight bytes and differ after them.
	a, b := rowID(t, "018f3e2a-7b1c-7def-8123-456789abcdef", "t"), rowID(t, "018f3e2a-7b1c-7def-8123-456789abcdee", "t")
	if a == b || !bytes.Equal(a[:8], b[:8]) {
		t.Errorf("%s and %s", a, b)
	}
	// The ids differ only in the version nibble, which a row id does not keep.
	if c := rowID(t, "018f3e2a-7b1c-4def-8123-456789abcdef", "t"); a == c {
		t.Errorf("%s and %s", a, c)
	}
}

func TestRowIDText(t *testing.T) {
	id := rowID(t, core.NewEventID(), "t")
	parsed, err := core.ParseRowID(id.String())
	if err != nil || parsed != id {
		t.Errorf("%s parsed as %s, %v", id, parsed, err)
	}
	if parsed, err := core.ParseRowID(strings.ToUpper(id.String())); err != nil || parsed != id {
		t.Errorf("upper case: %s, %v", parsed, err)
	}
	text, err := json.Marshal(map[string]core.RowID{"id": id})
	if err != nil || string(text) != `{"id":"`+id.String()+`"}` {
		t.Errorf("%s, %v", text, err)
	}
	var back map[string]core.RowID
	if err := json.Unmarshal(text, &back); err != nil || back["id"] != id {
		t.Errorf("%v, %v", back, err)
	}
	if id.IsZero() || !(core.RowID{}).IsZero() || (core.RowID{}).String() != "00000000-0000-0000-0000-000000000000" {
		t.Error("zero value")
	}
}

var badIDs = []string{
	"", "x", "018f3e2a7b1c7def8123456789abcdef", "018f3e2a-7b1c-7def-8123-456789abcde",
	"018f3e2a-7b1c-7def-8123-456789abcdeff", "018f3e2a-7b1c-7def-8123-456789abcdeg",
	"018f3e2a-7b1c-7def-8123_456789abcdef", "{18f3e2a-7b1c-7def-8123-456789abcde}",
	"0-18f3e2a7b1c-7def-8123-456789abcdef", "81ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FA",
	"01ARZ3NDEKTSV4RRFFQ69G5FAVX", "01ARZ3NDEKTSV4RRFFQ69G5FAI", "01ARZ3NDEKTSV4RRFFQ69G5FAU",
	"01ARZ3NDEKTSV4RRFFQ69G5FAé", strings.Repeat("x", 1000),
}

func TestBadIDs(t *testing.T) {
	for _, s := range badIDs {
		if _, err := core.NewRowID(s, "t"); err == nil {
			t.Errorf("NewRowID accepts %q", s)
		} else if len(err.Error()) > 200 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
		if _, err := core.FreshRowID(s); err == nil {
			t.Errorf("FreshRowID accepts %q", s)
		}
		if _, _, err := core.RowIDRange(s); err == nil {
			t.Errorf("RowIDRange accepts %q", s)
		}
		if _, err := core.ParseRowID(s); err == nil {
			t.Errorf("ParseRowID accepts %q", s)
		}
		var id core.RowID
		if err := id.UnmarshalText([]byte(s)); err == nil || !id.IsZero() {
			t.Errorf("UnmarshalText accepts %q", s)
		}
	}
	if _, err := core.ParseRowID("01ARZ3NDEKTSV4RRFFQ69G5FAV"); err == nil {
		t.Error("ParseRowID accepts a ULID")
	}
}

// FuzzEventID requires that every accepted id has one canonical spelling, under which it is stored,
// and one row id.
func FuzzEventID(f *testing.F) {
	for _, s := range append(badIDs, core.NewEventID(), "01ARZ3NDEKTSV4RRFFQ69G5FAV", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
		"F47AC10B-58CC-4372-A567-0E02B2C3D479") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := core.NewRowID(s, "t")
		if err != nil {
			return
		}
		row := publishOne(t, core.Config{}, core.Event{ID: s, Type: "t"})
		if !strings.EqualFold(row.Event.ID, s) || row.ID != id || rowID(t, row.Event.ID, "t") != id {
			t.Fatalf("%q is stored as %q with row id %s, want %s", s, row.Event.ID, row.ID, id)
		}
		again := publishOne(t, core.Config{}, core.Event{ID: row.Event.ID, Type: "t"})
		if again.Event.ID != row.Event.ID {
			t.Fatalf("%q is not canonical: %q", row.Event.ID, again.Event.ID)
		}
	})
}

func TestDeriveEventID(t *testing.T) {
	seen := map[string]string{}
	for _, identity := range []string{"", "order 42", "order 43", "\xff", strings.Repeat("x", 1<<16)} {
		id := core.DeriveEventID(identity)
		if id != core.DeriveEventID(identity) || id[14] != '8' || !strings.ContainsRune("89ab", rune(id[19])) {
			t.Errorf("%.20q: %s", identity, id)
		}
		if other, ok := seen[id]; ok {
			t.Errorf("%.20q and %.20q have one id", identity, other)
		}
		seen[id] = identity
		row := publishOne(t, core.Config{}, core.Event{ID: id, Type: "t"})
		if row.Event.ID != id {
			t.Errorf("stored as %s", row.Event.ID)
		}
	}
	// If the id changed between two releases, consumers would take one event for two.
	if id := core.DeriveEventID("order 42"); id != "359a2e1f-46f3-8609-86e1-3e69ac314c32" {
		t.Errorf("order 42 is %s", id)
	}
}

func TestKeyIDsAreDistinct(t *testing.T) {
	seen := map[core.KeyID][3]string{}
	parts := []string{"", "a", "b", "ab", "A", "a ", "\x01", "aa"}
	for _, tenant := range parts {
		for _, topic := range parts {
			for _, key := range parts {
				k := core.NewKeyID(tenant, topic, key)
				if other, twice := seen[k]; twice {
					t.Errorf("%q and %q share a KeyID", other, [3]string{tenant, topic, key})
				}
				seen[k] = [3]string{tenant, topic, key}
				prefix := core.KeyIDPrefix(topic)
				if k != core.NewKeyID(tenant, topic, key) || k.IsZero() || !bytes.Equal(k[:4], prefix[:]) {
					t.Errorf("key id %x of topic %q with prefix %x", k, topic, prefix)
				}
			}
		}
	}
}

func TestReplayKeyID(t *testing.T) {
	k, m := core.NewKeyID("", "t", "k"), core.NewKeyID("", "t", "m")
	r := core.ReplayKeyID(k)
	if r == k || r == core.ReplayKeyID(m) || r != core.ReplayKeyID(k) || !bytes.Equal(r[:4], k[:4]) {
		t.Errorf("key id %x, replay %x", k, r)
	}
	if !(core.KeyID{}).IsZero() {
		t.Error("the zero KeyID is not zero")
	}
}

// The bytes of key ids and row ids are in the tables of users, so they must never change.
func TestStoredBytesAreStable(t *testing.T) {
	k := core.NewKeyID("acme", "orders", "order/7")
	if got, want := fmt.Sprintf("%x", k), "1c168adbcee0f1be5ef7f2cd971a6963"; got != want {
		t.Errorf("key id %s, want %s", got, want)
	}
	if got, want := fmt.Sprintf("%x", core.ReplayKeyID(k)), "1c168adb62ac6a57acfba64f665a89fe"; got != want {
		t.Errorf("replay %s, want %s", got, want)
	}
	if got, want := rowID(t, "018f3e2a-7b1c-7def-8123-456789abcdef", "orders").String(),
		"018f3e2a-7b1c-8def-8a7a-600d26bce434"; got != want {
		t.Errorf("row id %s, want %s", got, want)
	}
}

// In JSON a KeyID is 32 hexadecimal digits, as databases show it.
func TestKeyIDText(t *testing.T) {
	k := core.NewKeyID("", "t", "k")
	text, err := json.Marshal(k)
	if err != nil || string(text) != fmt.Sprintf(`"%x"`, k[:]) {
		t.Errorf("%s, %v", text, err)
	}
	var back core.KeyID
	if err := json.Unmarshal(text, &back); err != nil || back != k {
		t.Errorf("%x, %v; want %x", back, err, k)
	}
	for _, wrong := range []string{`""`, `"12"`, `"` + strings.Repeat("x", 32) + `"`} {
		if err := json.Unmarshal([]byte(wrong), &back); err == nil || back != k {
			t.Errorf("%s is taken: %x, %v", wrong, back, err)
		}
	}
}
