package entschema_test

import (
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/entoutbox/entschema"
)

func TestIDScan(t *testing.T) {
	want := entschema.ID{0x01, 0x98, 15: 0xff}
	value, err := want.Value()
	if err != nil {
		t.Fatal(err)
	}
	for name, src := range map[string]any{
		"bytes": value, "text": want.String(),
		"text in bytes": []byte(want.String()),
	} {
		var got entschema.ID
		if err := got.Scan(src); err != nil || got != want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	for _, src := range []any{nil, 1, "no id", []byte("short")} {
		var got entschema.ID
		if err := got.Scan(src); err == nil {
			t.Errorf("%v was taken for %s", src, got)
		}
	}
}

func TestTimeScan(t *testing.T) {
	want := time.Date(2026, 2, 3, 4, 5, 6, 789000, time.UTC)
	for name, src := range map[string]any{
		"time": want.In(time.FixedZone("", 3600)), "microseconds": want.UnixMicro(),
		"text": "2026-02-03 04:05:06.000789", "text in bytes": []byte("2026-02-03 04:05:06.000789"),
	} {
		var got entschema.Time
		if err := got.Scan(src); err != nil || !got.Equal(want) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	for _, src := range []any{nil, true, "yesterday"} {
		var got entschema.Time
		if err := got.Scan(src); err == nil {
			t.Errorf("%v was taken for %s", src, got)
		}
	}
}
