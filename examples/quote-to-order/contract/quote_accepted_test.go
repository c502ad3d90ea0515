package contract

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

var accepted = QuoteAccepted{
	QuoteID: "Q-1", Customer: "ada@example.com", AcceptedAt: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC),
	Lines: []Line{{1, "chair", 3, 4900}, {2, "table", 1, 19900}},
}

// A reader of version 2 gets the same event from both versions.
func TestBothVersionsAreTheSameEvent(t *testing.T) {
	t.Parallel()
	for version, document := range map[int]any{0: accepted, 1: accepted, 2: accepted.Version2()} {
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadQuoteAccepted(text, version, 2)
		if err != nil || !reflect.DeepEqual(got, accepted) {
			t.Errorf("version %d: %+v, %v", version, got, err)
		}
	}
}

func TestUnknownFieldsAreIgnored(t *testing.T) {
	t.Parallel()
	got, err := ReadQuoteAccepted([]byte(`{"quote_id":"Q-1","customer":"ada@example.com","campaign":"spring",
		"lines":[{"line":1,"sku":"chair","quantity":3,"cents":4900,"colour":"red"},
			{"line":2,"sku":"table","quantity":1,"cents":19900}],"accepted_at":"2026-11-25T12:00:00Z"}`), 1, 1)
	if err != nil || !reflect.DeepEqual(got, accepted) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestDocumentsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	v2, err := json.Marshal(accepted.Version2())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		document        string
		version, newest int
	}{
		"newer than the release":        {string(v2), 2, 1},
		"version 2 that calls itself 1": {string(v2), 1, 2},
		"no JSON":                       {"quote Q-1", 1, 2},
		"another document":              {"{}", 1, 2},
		"another unit":                  {`{"quote_id":"Q-1","customer":"a","lines":[{"quantity":"3 kg"}]}`, 2, 2},
	} {
		if got, err := ReadQuoteAccepted([]byte(tc.document), tc.version, tc.newest); err == nil {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
}
