package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

func TestParseMutant(t *testing.T) {
	t.Parallel()
	m, err := parseMutant("core/no-lease", claimPatch)
	fixture.NoError(t, err)
	if m.breaks != "a claim takes no lease" || m.promise != "one holder at a time" {
		t.Errorf("breaks %q, promise %q", m.breaks, m.promise)
	}
	if len(m.tests) != 1 || m.tests[0] != (test{pkg: "./core", name: "TestClaim/one_holder"}) {
		t.Errorf("tests %v", m.tests)
	}
	if m.file != "integration/mutants/patches/core/no-lease.patch" {
		t.Errorf("file %q", m.file)
	}
}

func TestParseMutantRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ old, new, want string }{
		"no breaks":          {"Breaks: a claim takes no lease\n", "", "needs the lines"},
		"no promise":         {"Promise: one holder at a time\n", "", "needs the lines"},
		"no test":            {"Caught by: ./core TestClaim/one_holder\n", "", "needs the lines"},
		"no folder":          {"./core TestClaim", "TestClaim", "want a folder and a test"},
		"a name with blanks": {"one_holder", "one holder", "want a folder and a test"},
		"another line":       {"Promise:", "Author: me\nPromise:", `"Author: me"`},
		"a change of a test": {"core/claim.go", "core/claim_test.go", "mutants are of the code"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.ReplaceAll(claimPatch, c.old, c.new)
			if text == claimPatch {
				t.Fatal("the case changes nothing")
			}
			_, err := parseMutant("x", text)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// Every patch still applies to the code, and no two patches make the same mistake.
func TestPatchesApply(t *testing.T) {
	t.Parallel()
	root, err := findRoot()
	fixture.NoError(t, err)
	mutants, err := load(root, regexp.MustCompile(""))
	fixture.NoError(t, err)
	seen := map[string]string{}
	for i := range mutants {
		m := &mutants[i]
		changed, err := m.apply(root)
		if err != nil {
			t.Errorf("%s: %v", m.file, err)
		}
		for file, text := range changed {
			if other := seen[file+"\n"+text]; other != "" {
				t.Errorf("%s makes the same of %s as %s", m.file, file, other)
			}
			seen[file+"\n"+text] = m.file
		}
	}
}
