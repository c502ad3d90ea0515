package textdiff_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core/internal/textdiff"
)

func TestPayloads(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, old, now, want string }{
		{"equal", "a", "a", ""},
		{"a member of JSON", `{"total":9007199254740993,"id":"a"}`, `{"total":9007199254740994,"id":"a"}`, `  {
-   "total": 9007199254740993,
+   "total": 9007199254740994,
    "id": "a"
  }
`},
		{"a new member", `{"id":1}`, `{"id":1,"n":2}`, "  {\n-   \"id\": 1\n+   \"id\": 1,\n+   \"n\": 2\n  }\n"},
		{"other spaces", `{"id":1}`, `{"id": 1}`, "- {\"id\":1}\n+ {\"id\": 1}\n"},
		{"text", "a\nb\nc", "a\nc", "  a\n- b\n  c\n"},
		{"from nothing", "", "x", "- \n+ x\n"},
	} {
		got := textdiff.Payloads([]byte(c.old), []byte(c.now))
		if got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
	got := textdiff.Payloads([]byte("\x00a"), []byte("b"))
	if !strings.HasPrefix(got, "- 2 bytes, SHA-256 ") || !strings.Contains(got, "\n+ 1 bytes, SHA-256 3e23e8160") {
		t.Errorf("bytes: %q", got)
	}
}

// Equal lines far from a change are left out, and a long difference is cut between lines.
func TestPayloadsAreBounded(t *testing.T) {
	t.Parallel()
	long := func(change ...int) []byte {
		rows := make([]string, 300)
		for i := range rows {
			rows[i] = fmt.Sprint("line ", i)
		}
		for _, n := range change {
			rows[n] = "changed"
		}
		return []byte(strings.Join(rows, "\n"))
	}
	got := textdiff.Payloads(long(), long(10, 200))
	if n := strings.Count(
		got,
		"\n",
	); n > 20 || strings.Count(got, "  …\n") != 1 ||
		strings.Count(got, "+ changed") != 2 {
		t.Errorf("%d lines:\n%s", n, got)
	}
	for _, old := range []string{strings.Repeat("é\n", 9000), strings.Repeat("é", 9000)} {
		got = textdiff.Payloads([]byte(old), []byte("x"))
		if len(got) > textdiff.Limit || !utf8.ValidString(got) || !strings.HasSuffix(got, "left out\n") {
			t.Errorf("%d bytes, ends %q", len(got), got[len(got)-60:])
		}
	}
}
