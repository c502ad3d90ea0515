package once_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core/once"
)

func TestKeyValidate(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for name, tt := range map[string]struct {
		key   once.Key
		wants []string // parts of the error text; none: the key is valid
	}{
		"smallest": {once.Key{Scope: "s", ID: "i"}, nil},
		"largest": {
			once.Key{Scope: long(once.MaxScope), Tenant: long(once.MaxTenant), ID: long(once.MaxID)},
			nil,
		},
		"unicode": {once.Key{Scope: "Zahlungen/Überweisung", Tenant: "東京", ID: "😀"}, nil},
		"blanks":  {once.Key{Scope: " ", Tenant: " ", ID: " "}, nil},
		"nothing": {once.Key{}, []string{"scope is empty", "id is empty"}},
		"all too long": {
			once.Key{Scope: long(256), Tenant: long(65), ID: long(256)},
			[]string{"scope has 256 bytes", "tenant has 65 bytes", "id has 256 bytes"},
		},
		"bytes, not runes": {
			once.Key{Scope: "s", ID: strings.Repeat("漢", 86)},
			[]string{"id has 258 bytes, more than 255"},
		},
		"NUL":        {once.Key{Scope: "s", ID: "a\x00"}, []string{"id has a control character"}},
		"DEL":        {once.Key{Scope: "s\x7f", ID: "a"}, []string{"scope has a control character"}},
		"line break": {once.Key{Scope: "s", Tenant: "a\r\n", ID: "a"}, []string{"tenant has a control character"}},
		"not UTF-8":  {once.Key{Scope: "s", ID: "\xc3"}, []string{"id is not valid UTF-8"}},
	} {
		err := tt.key.Validate()
		if len(tt.wants) == 0 {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.Is(err, once.ErrInvalidKey) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range tt.wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", name, err, want)
			}
		}
	}
}

func TestKeyString(t *testing.T) {
	for want, key := range map[string]once.Key{
		"s||i":              {Scope: "s", ID: "i"},
		"s|t|i":             {Scope: "s", Tenant: "t", ID: "i"},
		"a%7Cb|%25|c d":     {Scope: "a|b", Tenant: "%", ID: "c d"},
		"POST//pay%257C||1": {Scope: "POST//pay%7C", ID: "1"},
	} {
		if got := key.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if back, err := parseKey(want); err != nil || back != key {
			t.Errorf("%q was read as %#v, %v", want, back, err)
		}
	}
	for _, bad := range []string{
		"", "s", "s|i", "s|t|i|x", "||", "s||", "s||%", "s||%2", "s||%7c", "s||%41",
		"s||a\x00", "s||" + strings.Repeat("x", 256),
	} {
		if k, err := parseKey(bad); !errors.Is(err, once.ErrInvalidKey) {
			t.Errorf("%q was read as %#v, %v", bad, k, err)
		}
	}
}

func TestScope(t *testing.T) {
	for want, parts := range map[string][]string{
		"inbox/billing/invoice": {"inbox", "billing", "invoice"},
		"a%2Fb/c":               {"a/b", "c"},
		"a/b%2Fc":               {"a", "b/c"},
		"a%252Fb":               {"a%2Fb"},
		"POST/%2Fpayments":      {"POST", "/payments"},
		"a/":                    {"a", ""},
	} {
		if got := once.Scope(parts...); got != want {
			t.Errorf("%q became %q, want %q", parts, got, want)
		}
	}
}

// Different keys have different texts, and parseKey returns the key of every text.
func FuzzKey(f *testing.F) {
	f.Add("s", "t", "i", "s", "t", "j")
	f.Add("a|b", "", "c", "a", "b", "|c")
	f.Add("a%7Cb", "", "c", "a|b", "", "c")
	f.Add("%", "%25", "|", "%25", "%", "%7C")
	f.Fuzz(func(t *testing.T, s1, t1, i1, s2, t2, i2 string) {
		a, b := once.Key{Scope: s1, Tenant: t1, ID: i1}, once.Key{Scope: s2, Tenant: t2, ID: i2}
		if (a == b) != (a.String() == b.String()) {
			t.Errorf("%#v and %#v are %q and %q", a, b, a.String(), b.String())
		}
		back, err := parseKey(a.String())
		if valid := a.Validate(); (err == nil) != (valid == nil) {
			t.Errorf("%#v: %v, read back: %v", a, valid, err)
		} else if err == nil && back != a {
			t.Errorf("%#v was read as %#v", a, back)
		}
		if k, err := parseKey(s1); err == nil && k.String() != s1 { // any text
			t.Errorf("%q was read as %#v, which is %q", s1, k, k.String())
		}
		p, q := []string{s1, t1, i1}, []string{s2, t2, i2}
		if (p[0] == q[0] && p[1] == q[1] && p[2] == q[2]) != (once.Scope(p...) == once.Scope(q...)) {
			t.Errorf("scopes of %q and %q are %q and %q", p, q, once.Scope(p...), once.Scope(q...))
		}
	})
}

func TestFingerprint(t *testing.T) {
	of := func(parts ...string) once.Fingerprint {
		b := make([][]byte, len(parts))
		for i, p := range parts {
			b[i] = []byte(p)
		}
		return once.FingerprintOf(b...)
	}
	seen := map[once.Fingerprint][]string{}
	for _, parts := range [][]string{
		nil,
		{""},
		{"", ""},
		{"a"},
		{"a", ""},
		{"", "a"},
		{"ab", "c"},
		{"a", "bc"},
		{"abc"},
		{"a", "b", "c"},
	} {
		fp := of(parts...)
		if other, ok := seen[fp]; ok {
			t.Errorf("%q and %q are the same", parts, other)
		}
		seen[fp] = parts
		if fp.IsZero() || len(fp.String()) != 64 || fp != of(parts...) {
			t.Errorf("%q: %s", parts, fp)
		}
	}
	var zero once.Fingerprint
	a, b := of("a"), of("b")
	if !zero.IsZero() || zero.String() != "" || !zero.Matches(a) || !a.Matches(zero) || !a.Matches(a) || a.Matches(b) {
		t.Error("the zero fingerprint matches all, others themselves")
	}
}

func TestResultValidate(t *testing.T) {
	for name, tt := range map[string]struct {
		res  once.Result
		want error
	}{
		"zero": {once.Result{}, nil},
		"at the limits": {once.Result{
			Data: make([]byte, 10), Meta: strings.Repeat("m", once.MaxMeta),
			ContentType: strings.Repeat("c", 127),
		}, nil},
		"data":                  {once.Result{Data: make([]byte, 11)}, once.ErrInvalidResult},
		"meta":                  {once.Result{Meta: strings.Repeat("m", once.MaxMeta+1)}, once.ErrInvalidResult},
		"meta with NUL":         {once.Result{Meta: "\x00"}, once.ErrInvalidResult},
		"meta not UTF-8":        {once.Result{Meta: "\xff"}, once.ErrInvalidResult},
		"a long content type":   {once.Result{ContentType: strings.Repeat("c", 128)}, once.ErrInvalidResult},
		"a broken content type": {once.Result{ContentType: "a\n"}, once.ErrInvalidResult},
	} {
		if err := tt.res.Validate(10); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

// parseKey reads a text that Key.String wrote. It refuses any other text.
func parseKey(s string) (once.Key, error) {
	parts := strings.Split(s, "|")
	if len(parts) != 3 {
		return once.Key{}, once.ErrInvalidKey
	}
	unescape := strings.NewReplacer("%25", "%", "%7C", "|").Replace
	k := once.Key{Scope: unescape(parts[0]), Tenant: unescape(parts[1]), ID: unescape(parts[2])}
	if k.String() != s {
		return once.Key{}, once.ErrInvalidKey
	}
	return k, k.Validate()
}
