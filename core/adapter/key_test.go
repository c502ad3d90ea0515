package adapter_test

import (
	"database/sql/driver"
	"errors"
	"net/netip"
	"testing"

	"github.com/ormoutbox/ormoutbox/core/adapter"
)

type (
	number   int64
	stringer struct{ s string }
	valuer   struct {
		v   driver.Value
		err error
	}
)

func (s stringer) String() string             { return "<" + s.s + ">" }
func (v valuer) Value() (driver.Value, error) { return v.v, v.err }

// pointed has its methods on the pointer, and they accept nil.
type pointed struct{}

func (p *pointed) String() string {
	if p == nil {
		return "none"
	}
	return "pointed"
}

func TestKeyText(t *testing.T) {
	t.Parallel()
	n := 7
	var none *int
	text := &stringer{"y"}
	for want, v := range map[string]any{
		"a,b": "a,b", "7": 7, "-8": number(-8), "0aff": []byte{10, 255}, "0102": [2]byte{1, 2},
		"127.0.0.1": netip.MustParseAddr("127.0.0.1"), "<x>": stringer{"x"}, "9": valuer{v: int64(9)},
		"0b": valuer{v: []byte{11}}, "true": true, "<y>": text, "<z>": new(&stringer{"z"}), "pointed": &pointed{},
	} {
		if got, err := adapter.KeyText(v); got != want || err != nil {
			t.Errorf("%#v: %q, %v, want %q", v, got, err, want)
		}
	}
	for _, unset := range []any{
		nil, none, new(*int), (*stringer)(nil), (*valuer)(nil), (*netip.Addr)(nil), (*pointed)(nil), valuer{},
	} {
		if got, err := adapter.KeyText(unset); got != "" || err != nil {
			t.Errorf("%#v: %q, %v, want no text", unset, got, err)
		}
	}
	if got, err := adapter.KeyText(&n); got != "7" || err != nil {
		t.Errorf("a pointer: %q, %v", got, err)
	}
	if _, err := adapter.KeyText(valuer{err: errNowhere}); !errors.Is(err, errNowhere) {
		t.Errorf("a Valuer that fails: %v", err)
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	type column struct {
		value any
		zero  bool
	}
	for name, tc := range map[string]struct {
		columns []column
		want    string
	}{
		"none":         {nil, ""},
		"one":          {[]column{{7, false}}, "7"},
		"unset":        {[]column{{0, true}}, ""},
		"empty text":   {[]column{{"", true}, {"a", false}}, ",a"},
		"one is zero":  {[]column{{7, false}, {0, true}}, "7,0"},
		"nil pointers": {[]column{{(*stringer)(nil), true}, {(*valuer)(nil), true}}, ""},
		"one is nil":   {[]column{{(*stringer)(nil), true}, {7, false}}, ",7"},
		"all unset":    {[]column{{0, true}, {"", true}}, ""},
	} {
		var k adapter.Key
		for _, c := range tc.columns {
			if err := k.Add(c.value, c.zero); err != nil {
				t.Fatal(err)
			}
		}
		if got := k.Text(); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	var k adapter.Key
	if err := k.Add(valuer{err: errNowhere}, false); !errors.Is(err, errNowhere) {
		t.Errorf("a column that fails: %v", err)
	}
}
