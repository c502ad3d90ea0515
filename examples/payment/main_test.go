package main

import (
	"bytes"
	"path/filepath"
	"testing"
)

const want = `first:                       201 {"payment":1,"customer":"ada","cents":4200}
sent again:                  201 {"payment":1,"customer":"ada","cents":4200} (replayed)
same key, another amount:    422 problem: Idempotency-Key was used for a different request
same key, another customer:  201 {"payment":2,"customer":"bob","cents":4200}
no key:                      400 problem: Idempotency-Key is missing
declined:                    402 card declined
declined, sent again:        402 card declined (replayed)
ten at once:                 10 x 201 {"payment":3,"customer":"ada","cents":100}
3 payments in the table
`

func TestProgram(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out, "file:"+filepath.Join(t.TempDir(), "payments.db")); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("printed:\n%s\nwant:\n%s", &out, want)
	}
}
