package httpkey_test

import (
	"os"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
)

// The Link of every problem leads to a heading of the page, and every answer is in its table.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../docs/http-idempotency.md")
	must(t, err)
	for _, name := range httpkey.Problems() {
		if !strings.Contains(string(text), "\n### "+name+"\n") {
			t.Errorf("%s has no heading", name)
		}
	}
	if got, want := strings.Count(string(text), "\n### "), len(httpkey.Problems()); got != want {
		t.Errorf("%d problems are described, %d exist", got, want)
	}
	for _, o := range []httpkey.Answer{
		httpkey.Executed, httpkey.Replayed, httpkey.InFlight, httpkey.Mismatch, httpkey.MissingKey, httpkey.InvalidKey,
		httpkey.MissingScope, httpkey.UnreadableBody, httpkey.BodyTooLarge, httpkey.Abandoned, httpkey.NotKept,
		httpkey.Bypassed, httpkey.StoreError, httpkey.ClientGone,
	} {
		if !strings.Contains(string(text), "`"+string(o)+"`") {
			t.Errorf("answer %s is not described", o)
		}
	}
}
