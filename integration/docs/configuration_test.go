package docs

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// elsewhere are configurations that the page of settings does not list.
var elsewhere = map[string]string{
	"adapter.Config":               "core.Config, with fields that the page names",
	"sqloutbox.OpenConfig":         "core.Config, with fields that the page names",
	"metrics.Config":               "for authors of modules like promoutbox",
	"contract.HandlersConfig":      "docs/schema-evolution.md",
	"contractoutbox.Config":        "docs/schema-evolution.md",
	"inbox.ChainConfig":            "the parts of a chain, not settings",
	"watermillbridge.OutboxConfig": "docs/watermill.md",
}

// configured are types of fields of relay.Config with settings of their own.
var configured = []string{"RetryPolicy", "BreakerPolicy", "Retention"}

var (
	isConfig = regexp.MustCompile(`^[A-Z]?\w*Config$`)
	span     = regexp.MustCompile("`[^`]*`")
)

// The page of settings has each field of each exported configuration.
func TestConfigurationPageIsComplete(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(root + "/docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, text := range span.FindAllString(string(page), -1) {
		told[strings.Trim(text, "`")] = true
	}
	looked := 0
	for path, file := range filesWithSettings(t) {
		for _, d := range file.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range decl.Specs {
				spec, ok := s.(*ast.TypeSpec)
				if !ok || !spec.Name.IsExported() {
					continue
				}
				fields, ok := spec.Type.(*ast.StructType)
				name := spec.Name.Name
				full := filepath.Base(filepath.Dir(path)) + "." + name
				if !ok || !isConfig.MatchString(name) && !slices.Contains(configured, name) || elsewhere[full] != "" {
					continue
				}
				looked++
				if !told[full] && !slices.Contains(configured, name) {
					t.Errorf("docs/configuration.md does not mention %s", full)
				}
				for _, field := range fields.Fields.List {
					for _, id := range field.Names {
						if id.IsExported() && !told[id.Name] {
							t.Errorf("docs/configuration.md does not mention %s of %s", id.Name, full)
						}
					}
				}
			}
		}
	}
	if looked < 20 {
		t.Errorf("%d configurations were looked at", looked)
	}
}

// filesWithSettings parses the files that may declare a configuration, by their paths. Files that
// users cannot import are left out.
func filesWithSettings(t *testing.T) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") ||
			slices.Contains([]string{"integration", "examples", "cmd", "internal", "suite", "testdata"}, d.Name())) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil ||
			!bytes.Contains(src, []byte("Config struct")) && !bytes.Contains(src, []byte("Policy struct")) {
			return err
		}
		files[path], err = parser.ParseFile(token.NewFileSet(), path, src, parser.SkipObjectResolution)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
