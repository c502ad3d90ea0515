package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// folder holds the patches.
const folder = "integration/mutants/patches"

// mutant is one mistake.
type mutant struct {
	name    string // path below folder, without .patch
	file    string // the patch, from the root of the repository
	breaks  string
	promise string
	tests   []test
	files   []filePatch
}

// testAddress is a folder and a test.
var testAddress = regexp.MustCompile(`^\./\S+ Test\S*$`)

// test is a test that has to notice a mutant.
type test struct {
	pkg  string // from the root of the repository: ./core
	name string // the name that go test prints: TestX/case
}

func (t test) String() string { return t.pkg + " " + t.name }

// load reads the patches whose names match.
func load(root string, only *regexp.Regexp) ([]mutant, error) {
	var mutants []mutant
	var problems []error
	dir := filepath.Join(root, filepath.FromSlash(folder))
	err := filepath.WalkDir(dir, func(p string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		name, ok := strings.CutSuffix(filepath.ToSlash(rel), ".patch")
		if !ok {
			problems = append(problems, fmt.Errorf("%s is no .patch", path.Join(folder, filepath.ToSlash(rel))))
			return nil
		}
		if !only.MatchString(name) {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		m, err := parseMutant(name, string(text))
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", path.Join(folder, name+".patch"), err))
			return nil
		}
		mutants = append(mutants, m)
		return nil
	})
	if err := errors.Join(append(problems, err)...); err != nil {
		return nil, err
	}
	if len(mutants) == 0 {
		return nil, fmt.Errorf("no mutant below %s has a name that matches %q", folder, only)
	}
	return mutants, nil
}

// parseMutant reads a patch and the lines at its head.
func parseMutant(name, text string) (mutant, error) {
	m := mutant{name: name, file: path.Join(folder, name+".patch")}
	head, files, err := parsePatch(text)
	if err != nil {
		return m, err
	}
	m.files = files
	var problems []error
	for _, line := range head {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch key {
		case "":
			if line != "" {
				problems = append(problems, fmt.Errorf("%q says nothing", line))
			}
		case "Breaks":
			m.breaks = value
		case "Promise":
			m.promise = value
		case "Caught by":
			pkg, testName, _ := strings.Cut(value, " ")
			if !testAddress.MatchString(value) {
				problems = append(problems, fmt.Errorf("%q: want a folder and a test: ./core TestX/case", line))
			}
			m.tests = append(m.tests, test{pkg: pkg, name: testName})
		default:
			problems = append(problems, fmt.Errorf("%q: the head has the lines Breaks, Promise and Caught by", line))
		}
	}
	if m.breaks == "" || m.promise == "" || len(m.tests) == 0 {
		problems = append(problems, errors.New("the head needs the lines Breaks, Promise and Caught by"))
	}
	for _, f := range files {
		if strings.HasSuffix(f.path, "_test.go") {
			problems = append(problems, fmt.Errorf("it changes the test %s: mutants are of the code", f.path))
		}
	}
	return m, errors.Join(problems...)
}

// apply returns the changed files by their paths from the root.
func (m *mutant) apply(root string) (map[string]string, error) {
	changed := make(map[string]string, len(m.files))
	for _, f := range m.files {
		text, ok := changed[f.path]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(f.path)))
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		text, err := f.apply(text)
		if err != nil {
			return nil, err
		}
		changed[f.path] = text
	}
	return changed, nil
}

// packages returns the folders of the tests of all mutants, each once.
func packages(mutants []mutant) []string {
	var all []string
	for i := range mutants {
		for _, t := range mutants[i].tests {
			all = append(all, t.pkg)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// testsOf returns the tests of a package that the mutants name, each once.
func testsOf(mutants []mutant, pkg string) []string {
	var names []string
	for i := range mutants {
		for _, t := range mutants[i].tests {
			if t.pkg == pkg {
				names = append(names, t.name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
