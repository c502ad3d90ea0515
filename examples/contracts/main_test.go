package main

import (
	"bytes"
	"testing"
)

const want = `received order-1: 4200 cents (version 1)
received order-2: 990 cents (version 2)
waits: contract: newer version of the data
the consumer's next release is deployed
received order-3: 1500 SEK (version 3)
received order-4: 100 EUR (version 2)
refused: true
`

func TestProgram(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("printed:\n%s\nwant:\n%s", &out, want)
	}
}
