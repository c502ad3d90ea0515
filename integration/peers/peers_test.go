package main

import (
	"archive/tar"
	"compress/gzip"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestVerdicts(t *testing.T) {
	got := verdicts([]byte("\x16=== RUN   TestA\n2026/11/28 no end of line\x16--- PASS: TestA (0.01s)\n" +
		"\x16=== RUN   TestB/x\n--- FAIL: TestA (0.00s)\n\x16    --- FAIL: TestB/x (0.00s)\n" +
		"\x16--- FAIL: TestB (0.00s)\n\x16--- SKIP: TestC (0.00s)\n"))
	want := map[string]string{"TestA": "PASS", "TestB/x": "FAIL", "TestB": "FAIL", "TestC": "SKIP"}
	if !maps.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
}

func TestDiffer(t *testing.T) {
	reference := outcome{verdicts: map[string]string{
		"TestSame": "PASS", "TestFails": "PASS", "TestFails/sub": "PASS", "TestGone": "PASS", "TestSkips": "PASS",
		"TestFailed": "FAIL",
	}}
	o := outcome{verdicts: map[string]string{
		"TestSame": "PASS", "TestFails": "FAIL", "TestFails/sub": "FAIL", "TestSkips": "SKIP", "TestFailed": "FAIL",
	}}
	got := slices.Sorted(maps.Keys(differ(reference, o)))
	if want := []string{"TestFails/sub", "TestGone", "TestSkips"}; !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
}

func TestChoose(t *testing.T) {
	all := choose(options{share: share{1, 1}})
	seen := map[string]int{}
	for k := 1; k <= 10; k++ {
		for _, p := range choose(options{share: share{k, 10}}) {
			seen[p.String()]++
		}
	}
	if len(all) == 0 || len(seen) != len(all) {
		t.Fatalf("ten shares have %v of %d pairs", seen, len(all))
	}
	for _, s := range suites {
		named := options{share: share{1, 1}, suite: strings.ToLower(s.name)}
		if len(choose(named)) != len(s.databases) {
			t.Errorf("%s is not run when it is named", s.name)
		}
		if named.archives = "none"; (len(choose(named)) == 0) != (s.released == "") {
			t.Errorf("without archives, %d pairs of %s are run", len(choose(named)), s.name)
		}
	}
}

// An archive must not write outside of its folder.
func TestUnpack(t *testing.T) {
	for name, ok := range map[string]bool{"a/b.txt": true, "../b.txt": false} {
		archive := filepath.Join(t.TempDir(), "x.tgz")
		f, err := os.Create(archive)
		if err != nil {
			t.Fatal(err)
		}
		z := gzip.NewWriter(f)
		w := tar.NewWriter(z)
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: 2}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("hi")); err != nil {
			t.Fatal(err)
		}
		for _, close := range []func() error{w.Close, z.Close, f.Close} {
			if err := close(); err != nil {
				t.Fatal(err)
			}
		}
		dir := filepath.Join(t.TempDir(), "to")
		err = unpack(archive, dir)
		if (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "a", "b.txt")); ok && string(text) != "hi" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}
