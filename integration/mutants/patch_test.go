package main

import (
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

const claimPatch = `Breaks: a claim takes no lease
Promise: one holder at a time
Caught by: ./core TestClaim/one_holder

diff --git a/core/claim.go b/core/claim.go
index 3b18e51..a9b2c3d 100644
--- a/core/claim.go
+++ b/core/claim.go
@@ -40,3 +40,2 @@ func claim() {
 	row.no++

-	row.lease = now + lease
`

func TestParsePatch(t *testing.T) {
	t.Parallel()
	head, files, err := parsePatch(claimPatch) // with the empty line as editors leave it
	fixture.NoError(t, err)
	if len(head) != 4 || head[0] != "Breaks: a claim takes no lease" {
		t.Errorf("head %q", head)
	}
	if len(files) != 1 || files[0].path != "core/claim.go" || len(files[0].hunks) != 1 {
		t.Fatalf("files %+v", files)
	}
	h := files[0].hunks[0]
	if got := strings.Join(h.old, "|"); got != "\trow.no++||\trow.lease = now + lease" {
		t.Errorf("old %q", got)
	}
	if got := strings.Join(h.new, "|"); got != "\trow.no++|" {
		t.Errorf("new %q", got)
	}
}

func TestParsePatchRefuses(t *testing.T) {
	t.Parallel()
	const head = "--- a/x.go\n+++ b/x.go\n"
	for name, c := range map[string]struct{ patch, want string }{
		"no diff":            {"Breaks: nothing\n", "no diff"},
		"no second name":     {"--- a/x.go\n", "no line with +++"},
		"a new file":         {"--- /dev/null\n+++ b/x.go\n@@ -0,0 +1 @@\n+x\n", "files that stay"},
		"a file renamed":     {"--- a/x.go\n+++ b/y.go\n@@ -1 +1 @@\n-x\n+y\n", "files that stay"},
		"a file outside":     {"--- a/../x.go\n+++ b/../x.go\n@@ -1 +1 @@\n-x\n+y\n", "files that stay"},
		"no hunk":            {head, "changes nothing in x.go"},
		"no change":          {head + "@@ -1 +1 @@\n x\n", "changes nothing"},
		"a hunk of no file":  {"@@ -1 +1 @@\n-x\n+y\n", "no file"},
		"a hunk cut off":     {head + "@@ -1,2 +1,2 @@\n x\n-y\n", "ends inside a hunk"},
		"a hunk with more":   {head + "@@ -1 +1 @@\n-x\n+y\n+z\n", "belongs to no hunk"},
		"a head with no end": {head + "@@ -1 +1\n-x\n+y\n", "no head of a hunk"},
		"a foreign line":     {head + "@@ -1 +1 @@\n*x\n", "no line of a hunk"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := parsePatch(c.patch)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	patch := func(hunks ...hunk) filePatch { return filePatch{path: "x.go", hunks: hunks} }
	double := hunk{line: 9, old: []string{"a"}, new: []string{"a", "a2"}}
	swap := hunk{line: 7, old: []string{"b", "c"}, new: []string{"C"}}
	for name, c := range map[string]struct {
		patch            filePatch
		text, want, fail string
	}{
		"lines moved":    {patch(swap), "new\nnew\na\nb\nc\nd\n", "new\nnew\na\nC\nd\n", ""},
		"at the start":   {patch(swap), "b\nc\n", "C\n", ""},
		"no line break":  {patch(swap), "a\nb\nc", "a\nC", ""},
		"two hunks":      {patch(swap, double), "a\nb\nc\n", "a\na2\nC\n", ""},
		"a line changed": {patch(swap), "a\nb\nc2\n", "", `line 7 does not apply to x.go: no line there reads "c"`},
		"a line between": {patch(swap), "b\na\nc\n", "", "no longer follow each other"},
		"two places":     {patch(swap), "b\nc\nb\nc\n", "", "fits 2 places of x.go"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := c.patch.apply(c.text)
			switch {
			case c.fail == "" && err != nil:
				t.Error(err)
			case c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail)):
				t.Errorf("error %v, want one with %q", err, c.fail)
			case got != c.want:
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
