package main

import (
	"bytes"
	"path/filepath"
	"testing"
)

const want = `placed order-1 for ada: 4200 cents
paid order-1
refused: card declined
consumer: order.placed order-1 {"order_id":"order-1","customer":"ada","cents":4200}
consumer: order.paid order-1 {"order_id":"order-1"}
2 events, none of the refused order
`

func TestProgram(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out, "file:"+filepath.Join(t.TempDir(), "orders.db")); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("printed:\n%s\nwant:\n%s", &out, want)
	}
}
