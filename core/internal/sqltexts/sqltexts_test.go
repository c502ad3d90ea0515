package sqltexts_test

import (
	"maps"
	"testing"

	"github.com/ormoutbox/ormoutbox/core/internal/sqltexts"
)

type insert struct{ Plain, Guarded string }

type statements struct {
	look, getTx string
	insertTx    insert
	inner       any
	build       func(n int) string
}

func TestOf(t *testing.T) {
	build := func(int) string { return "" }
	all := &statements{look: "1", getTx: "2", insertTx: insert{Plain: "3"}, inner: &insert{"4", "5"}, build: build}
	got, err := sqltexts.Of(all, "insert_tx_guarded")
	want := map[string]string{
		"look": "1", "get_tx": "2", "insert_tx_plain": "3", "inner_plain": "4", "inner_guarded": "5",
		"build of 2": "",
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for what, s := range map[string]statements{
		"a text":      {look: "1", insertTx: insert{"3", "3"}, inner: insert{"4", "5"}, build: build},
		"a part":      {look: "1", getTx: "2", insertTx: insert{Plain: "3"}, inner: insert{"4", "5"}, build: build},
		"an inner":    {look: "1", getTx: "2", insertTx: insert{"3", "3"}, build: build},
		"an inner's":  {look: "1", getTx: "2", insertTx: insert{"3", "3"}, inner: insert{"4", ""}, build: build},
		"a function":  {look: "1", getTx: "2", insertTx: insert{"3", "3"}, inner: insert{"4", "5"}},
		"all of them": {},
	} {
		if got, err := sqltexts.Of(s); err == nil {
			t.Errorf("%s is missing, and was not missed: %v", what, got)
		}
	}
}
