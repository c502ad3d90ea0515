package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
)

// purse is the code of a repository that has mutants of each kind.
var purse = map[string]string{
	"go.mod":  "module example.test/purse\n\ngo 1.26\n",
	"go.work": "go 1.26\n\nuse .\n",
	"purse/purse.go": `package purse

const motto = "spend less"

type Purse struct{ coins int }

func (p *Purse) Put(n int) {
	p.coins += n
}

func (p *Purse) Take(n int) bool {
	if n > p.coins {
		return false
	}
	p.coins -= n
	return true
}
`,
	"purse/purse_test.go": `package purse

import "testing"

func TestTake(t *testing.T) {
	t.Run("too much", func(t *testing.T) {
		if p := (Purse{coins: 1}); p.Take(2) {
			t.Error("took two coins of one")
		}
	})
	t.Run("all", func(t *testing.T) {
		if p := (Purse{coins: 1}); !p.Take(1) {
			t.Error("did not take the one coin")
		}
	})
}

func TestPut(t *testing.T) {
	p := Purse{}
	if p.Put(1); p.coins != 1 {
		t.Errorf("%d coins after one", p.coins)
	}
}

func TestMotto(t *testing.T) {
	if motto != "spend less" {
		t.Error(motto)
	}
}

func TestRed(t *testing.T) { t.Error("is red") }

func TestSkipped(t *testing.T) { t.Skip() }

func TestServer(t *testing.T) {
	t.Fatal("no server")
	t.Run("answers", func(*testing.T) {})
}
`,
}

// diffs are bodies of hunks by the names of mutants, with the test that has to fail and the verdict
// that is expected.
var diffs = map[string]struct {
	test, hunk string
	verdict    verdict
	detail     string
}{
	"caught": {
		"TestTake/too_much", "@@ -9,3 +9,3 @@\n-\tif n > p.coins {\n+\tif n > p.coins+1 {\n \t\treturn false\n \t}\n",
		caught, "TestTake/too_much: took two coins of one",
	},
	"survived": {
		"TestTake/all", "@@ -9,2 +9,1 @@\n-\tp.coins -= n\n \treturn true\n",
		survived, "TestTake/all passes",
	},
	"stale": {
		"TestTake/all", "@@ -9 +9 @@\n-\tp.coins = p.coins - n\n+\tp.coins--\n",
		stale, `no line there reads "\tp.coins = p.coins - n"`,
	},
	"uncompiled": {
		"TestTake/all", "@@ -9 +9 @@\n-\treturn true\n+\treturn 1\n",
		broken, "does not compile",
	},
	"sql": {
		"TestMotto", "@@ -1 +1 @@\n-const motto = \"spend less\"\n+const motto = \"(SQLSTATE 42601)\"\n",
		badSQL, "SQLSTATE 42",
	},
	"red":     {"TestRed", "@@ -9 +9 @@\n-\tp.coins += n\n+\tp.coins--\n", redTest, "is red"},
	"none":    {"TestGive", "@@ -9 +9 @@\n-\tp.coins += n\n+\tp.coins--\n", noSuchTest, "TestGive did not run"},
	"skipped": {"TestSkipped", "@@ -9 +9 @@\n-\tp.coins += n\n+\tp.coins--\n", noSuchTest, "TestSkipped did not run"},
	"server": {
		"TestServer/answers", "@@ -9 +9 @@\n-\tp.coins += n\n+\tp.coins--\n",
		redTest, "TestServer fails without the mutant, too: no server",
	},
	"endless": {"TestPut", "@@ -9 +9 @@\n-\tp.coins += n\n+\tselect {}\n", endless, "TestPut did not end in 15s"},
	"crashed": {
		"TestPut", "@@ -9 +9,2 @@\n-\tp.coins += n\n+\tgo func() { panic(p) }()\n+\tselect {}\n",
		crashed, "neither failed nor passed",
	},
}

// makeRepository writes the purse with these mutants and returns its root.
func makeRepository(t *testing.T, names ...string) string {
	t.Helper()
	root, files := t.TempDir(), maps.Clone(purse)
	for _, name := range names {
		d := diffs[name]
		files[folder+"/"+name+".patch"] = "Breaks: it\nPromise: one\nCaught by: ./purse " + d.test + "\n\n" +
			"--- a/purse/purse.go\n+++ b/purse/purse.go\n" + d.hunk
	}
	for name, text := range files {
		file := filepath.Join(root, filepath.FromSlash(name))
		fixture.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		fixture.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	return root
}

func TestVerdicts(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	var names []string
	for name := range diffs {
		names = append(names, name)
	}
	root := makeRepository(t, names...)
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"-root", root, "-json", "-timeout", "15s"}, &out, &errs)
	if code != exitSurvived || errs.Len() > 0 {
		t.Errorf("exit %d, %s", code, &errs)
	}
	results, ended := 0, false
	for text := range strings.Lines(out.String()) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		switch l.Action {
		case "result":
			results++
			want := diffs[l.Name]
			if l.Verdict != want.verdict || !strings.Contains(l.Detail, want.detail) {
				t.Errorf("%s: %s, %q; want %s, %q\n%s",
					l.Name, l.Verdict, l.Detail, want.verdict, want.detail, l.Output)
			}
		case "end":
			ended = l.Mutants == len(diffs) && *l.Missed == len(diffs)-1
		}
	}
	if results != len(diffs) || !ended {
		t.Errorf("%d results of %d mutants, end %v", results, len(diffs), ended)
	}
	text, err := os.ReadFile(filepath.Join(root, "purse", "purse.go"))
	if err != nil || string(text) != purse["purse/purse.go"] {
		t.Errorf("the code was changed: %v\n%s", err, text)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	root := makeRepository(t, "caught", "survived", "uncompiled")
	for _, c := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"-run", "^caught$"}, exitCaught, []string{
			"1 mutants, tests of 1 packages", "./purse", "1 tests, passed", "1/1 ", "caught", "took two coins of one",
			"1 mutants, 1 caught, 0 not, in 0:",
		}},
		{[]string{"-parallel", "1"}, exitSurvived, []string{
			"3/3 ", "SURVIVED",
			folder + "/survived.patch: SURVIVED\n  breaks:  it\n  promise: one\n  TestTake/all passes\n",
			"DOES NOT COMPILE", "  | ", "cannot use 1", "3 mutants, 1 caught, 2 not",
		}},
		{[]string{"-list"}, exitCaught, []string{
			"survived\n  breaks:    it\n", "caught by: ./purse TestTake/all\n", "3 mutants\n",
		}},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			if code := run(t.Context(), append([]string{"-root", root}, c.args...), &out, &errs); code != c.code {
				t.Errorf("exit %d, want %d: %s", code, c.code, &errs)
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, &out)
				}
			}
		})
	}
}

func TestWrongCalls(t *testing.T) {
	t.Parallel()
	root := makeRepository(t, "caught")
	for want, args := range map[string][]string{
		"no mutant below":       {"-run", "nothing-like-it"},
		"-run":                  {"-run", "("},
		"unexpected argument":   {"caught"},
		"-parallel":             {"-parallel", "0"},
		"-timeout":              {"-timeout", "0s"},
		"flag provided but not": {"-mutant"},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			code := run(t.Context(), append([]string{"-root", root}, args...), &out, &errs)
			if code != exitUsage || !strings.Contains(errs.String(), want) || out.Len() > 0 {
				t.Errorf("exit %d, said %q, wrote %q", code, &errs, &out)
			}
		})
	}
}
