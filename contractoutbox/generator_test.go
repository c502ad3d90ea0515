package contractoutbox_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/ormoutbox/ormoutbox/contractoutbox"
	"github.com/ormoutbox/ormoutbox/core/contract"
)

var update = flag.Bool("update", false, "write testdata/events")

func newGenerator(t *testing.T, c *contract.Catalog, cfg contractoutbox.Config) *contractoutbox.Generator {
	t.Helper()
	g, err := contractoutbox.New(c, cfg)
	must(t, err)
	return g
}

var config = contractoutbox.Config{
	Title: "Shop", Description: "The events of the shop.", BaseURL: "https://shop.example/events/",
}

// The generator writes the documents that are in testdata/events. People have reviewed those.
func TestDocuments(t *testing.T) {
	g := newGenerator(t, catalog(), config)
	dir := filepath.Join("testdata", "events")
	if *update {
		must(t, g.Write(dir))
	}
	noError(t, g.Verify(dir))
	want := []string{
		"README.md", "asyncapi.json", "audit-done/audit-done.md", "audit-done/audit-done.v1.schema.json",
		"sales/order.cancelled.md", "sales/order.cancelled.v1.schema.json", "sales/order.placed.md",
		"sales/order.placed.v1.schema.json", "sales/order.placed.v2.schema.json",
	}
	if got := slices.Sorted(maps.Keys(g.Files())); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for range 5 { // maps have no order
		again := newGenerator(t, catalog(), config)
		if !reflect.DeepEqual(again.Files(), g.Files()) {
			t.Fatal("another run wrote other files")
		}
	}
}

// The AsyncAPI document is valid by the JSON Schema of AsyncAPI 3.0, and each payload schema by the
// JSON Schema of draft 7 in it. Every reference leads somewhere.
func TestAsyncAPIIsValid(t *testing.T) {
	file, err := os.Open(filepath.Join("testdata", "asyncapi-3.0.0.json.gz"))
	must(t, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	must(t, err)
	text, err := io.ReadAll(unzipped)
	must(t, err)
	schema := &jsonschema.Schema{}
	must(t, json.Unmarshal(text, schema))
	schema.Schema += "#" // the validator wants the whole name of the draft
	asyncAPI, err := schema.Resolve(nil)
	must(t, err)
	read := func() (doc map[string]any) {
		must(t, json.Unmarshal(newGenerator(t, catalog(), config).Files()["asyncapi.json"], &doc))
		return doc
	}
	doc := read()
	noError(t, asyncAPI.Validate(doc))
	for ref := range references(doc) {
		at := any(doc)
		for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			at = at.(map[string]any)[name]
		}
		if at == nil {
			t.Errorf("%s leads nowhere", ref)
		}
	}
	// The schema does find mistakes.
	for name, damage := range map[string]func(doc map[string]any){
		"no title": func(doc map[string]any) { delete(doc["info"].(map[string]any), "title") },
		"a bad field": func(doc map[string]any) {
			doc["channels"].(map[string]any)["orders"].(map[string]any)["x"] = 1
		},
		"a bad payload": func(doc map[string]any) {
			messages := doc["components"].(map[string]any)["messages"].(map[string]any)
			messages["order.placed.v2"].(map[string]any)["payload"].(map[string]any)["type"] = "text"
		},
	} {
		doc := read()
		damage(doc)
		if asyncAPI.Validate(doc) == nil {
			t.Errorf("%s is valid", name)
		}
	}
}

func references(v any) map[string]bool {
	found := map[string]bool{}
	switch v := v.(type) {
	case map[string]any:
		for name, e := range v {
			if ref, ok := e.(string); ok && name == "$ref" {
				found[ref] = true
			}
			maps.Copy(found, references(e))
		}
	case []any:
		for _, e := range v {
			maps.Copy(found, references(e))
		}
	}
	return found
}

// The schema of a type accepts all that encoding/json writes for it.
func TestSchemaAcceptsWhatJSONWrites(t *testing.T) {
	one := 1
	ptr := &one
	e := contract.Must(contract.Define(contract.Spec[zoo]{
		Type: "zoo", Owner: "o", Description: "d",
		Example: zoo{Text: "x", Raw: json.RawMessage("1"), Number: "1", Ptr: &ptr},
	}))
	g := newGenerator(t, contract.Must(contract.NewCatalog(e)), contractoutbox.Config{})
	n := 0
	check := func(v zoo) bool {
		n++
		v.Number, v.Zero = "1.5", time.Time{}
		if v.Raw = json.RawMessage(`{"x":[1]}`); v.Bool {
			v.Zero = time.Unix(int64(v.U32), 0).UTC()
		}
		v.Enum = nil
		v.Enums = nil
		payload, err := json.Marshal(&v)
		must(t, err)
		if err := g.Validate("zoo", 1, payload); err != nil {
			t.Errorf("%s: %v", payload, err)
			return false
		}
		return true
	}
	cfg := &quick.Config{MaxCount: 300, Values: func(args []reflect.Value, r *rand1) {
		args[0] = reflect.ValueOf(randomZoo(r))
	}}
	noError(t, quick.Check(check, cfg))
	check(zoo{})
	check(zoo{Optional: &contractOptional{}, Map: map[int]map[string][]bool{1: {"a": nil, "b": {true}}, 2: nil}})
	if n < 300 {
		t.Errorf("%d values", n)
	}
	for payload, want := range map[string]string{ // and it refuses others
		`{}`: "required",
	} {
		if err := g.Validate("zoo", 1, []byte(payload)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", payload, err)
		}
	}
}

func TestValidate(t *testing.T) {
	g := newGenerator(t, catalog(), config)
	noError(t, g.Validate("order.placed", 1, []byte(`{"id":"o","euros":1,"more":2}`)))
	for name, err := range map[string]error{
		"type: 1 has type":  g.Validate("order.placed", 1, []byte(`{"id":1,"euros":1}`)),
		"required":          g.Validate("order.cancelled", 1, []byte(`{}`)),
		"unexpected end":    g.Validate("order.cancelled", 1, []byte(`{`)),
		"order.paid":        g.Validate("order.paid", 1, []byte(`{}`)),
		"version 3":         g.Validate("order.placed", 3, []byte(`{}`)),
		"order.placed, ver": g.Validate("order.placed", 1, []byte(`[]`)),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := g.Validate("order.paid", 1, nil); !errors.Is(err, contractoutbox.ErrUnknown) {
		t.Error(err)
	}
}

type selfMade struct{ n int }

func (s selfMade) MarshalJSON() ([]byte, error) { return json.Marshal(s.n) }

func (s *selfMade) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &s.n) }

type recursive struct {
	Name string
	Next *recursive `json:",omitempty"`
}

type hasSelfMade struct{ S selfMade }

// New refuses a type that it cannot describe, and names it. A schema in Config helps.
func TestNewRefuses(t *testing.T) {
	entry := func(name string, define func(name string) (contract.Entry, error)) *contract.Catalog {
		return contract.Must(contract.NewCatalog(contract.Must(define(name))))
	}
	self := func(name string) (contract.Entry, error) {
		return contract.Define(contract.Spec[hasSelfMade]{
			Type: name, Owner: "o", Description: "d", Example: hasSelfMade{selfMade{7}},
		})
	}
	circle := func(name string) (contract.Entry, error) {
		return contract.Define(contract.Spec[recursive]{
			Type: name, Owner: "o", Description: "d", Example: recursive{Name: "x"},
		})
	}
	type tags struct {
		A string `minimum:"1"`
		B int    `minimum:"x"`
		C string `pattern:"("`
		D string `minLength:"-1"`
		E int    `enum:"a"`
	}
	type wrong struct {
		A string `enum:"a,b"`
	}
	for text, tc := range map[string]struct {
		catalog *contract.Catalog
		cfg     contractoutbox.Config
	}{
		"it is empty": {nil, contractoutbox.Config{}},
		"selfMade has a MarshalJSON: give its schema in Config.Schemas": {
			entry("t", self), contractoutbox.Config{},
		},
		"recursive contains itself: give its schema in Config.Schemas": {entry("t", circle), contractoutbox.Config{}},
		"field A: tag minimum is for number and integer|field B: tag minimum:\"x\"|field C: tag pattern|" +
			"field D: tag minLength|field E: tag enum": {
			entry("t", func(name string) (contract.Entry, error) {
				return contract.Define(contract.Spec[tags]{
					Type: name, Owner: "o", Description: "d", Example: tags{A: "1"},
				})
			}), contractoutbox.Config{},
		},
		"the example breaks the schema": {
			entry("t", func(name string) (contract.Entry, error) {
				return contract.Define(contract.Spec[wrong]{
					Type: name, Owner: "o", Description: "d", Example: wrong{"c"},
				})
			}), contractoutbox.Config{},
		},
		"two events need the file a-b/x-y.md": {
			func() *contract.Catalog {
				define := func(name, domain string) contract.Entry {
					return contract.Must(contract.Define(contract.Spec[cancelled1]{
						Type: name, Domain: domain, Owner: "o", Description: "d", Example: cancelled1{OrderID: "o"},
					}))
				}
				return contract.Must(contract.NewCatalog(define("x y", "a b"), define("x/y", "a/b")))
			}(), contractoutbox.Config{},
		},
		"Config.Compatibility is compatibility(3)": {catalog(), contractoutbox.Config{Compatibility: 3}},
	} {
		_, err := contractoutbox.New(tc.catalog, tc.cfg)
		for part := range strings.SplitSeq(text, "|") {
			if !errors.Is(err, contractoutbox.ErrCatalog) || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v", part, err)
			}
		}
	}
	g := newGenerator(t, entry("t", self), contractoutbox.Config{
		Schemas: map[reflect.Type]*jsonschema.Schema{reflect.TypeFor[selfMade](): {Type: "integer"}},
	})
	if err := g.Validate("t", 1, []byte(`{"S":"x"}`)); err == nil {
		t.Error("the given schema was not used")
	}
}

// Verify finds files that are missing, changed or left over. Write mends exactly those, and touches
// no file that a person wrote.
func TestWriteAndVerify(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "docs", "events")
	g := newGenerator(t, catalog(), config)
	if err := g.Verify(dir); !errors.Is(err, contractoutbox.ErrDiffers) ||
		!strings.Contains(err.Error(), "asyncapi.json is missing") {
		t.Error(err)
	}
	must(t, errors.Join(g.Write(dir), g.Verify(dir)))
	path := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	page, err := os.ReadFile(path("sales/order.placed.md"))
	must(t, err)
	put := func(name string, content []byte) {
		t.Helper()
		must(t, os.MkdirAll(filepath.Dir(path(name)), 0o755))
		must(t, os.WriteFile(path(name), content, 0o600))
	}
	put("sales/order.placed.md", bytes.ReplaceAll(page, []byte("\n"), []byte("\r\n"))) // as Git does on Windows
	noError(t, g.Verify(dir))
	put("sales/order.placed.md", bytes.Replace(page, []byte("team orders"), []byte("team x"), 1))
	put("gone/order.gone.md", page)
	put("gone/mine.md", []byte("# mine\n"))
	put("sales/mine.schema.json", []byte("{}\n"))
	must(t, os.Remove(path("asyncapi.json")))
	err = g.Verify(dir)
	for _, text := range []string{
		"Generator.Write(", `sales/order.placed.md: line `,
		`is "| owner | team x |", but "| owner | team orders |" in the catalog`,
		"gone/order.gone.md is of an event that is not in the catalog", "asyncapi.json is missing",
	} {
		if !errors.Is(err, contractoutbox.ErrDiffers) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if strings.Contains(err.Error(), "mine") {
		t.Error(err)
	}
	before, err := os.Stat(path("README.md"))
	must(t, err)
	noError(t, errors.Join(g.Write(dir), g.Verify(dir)))
	after, err := os.Stat(path("README.md"))
	if err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("a file that is the same was written again: %v", err)
	}
	for name, there := range map[string]bool{
		"gone/order.gone.md": false, "gone/mine.md": true, "sales/mine.schema.json": true,
	} {
		if _, err := os.Stat(path(name)); (err == nil) != there {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type (
	rand1            = randSource
	contractOptional = Optional
)

func randomZoo(r *rand1) zoo {
	v, ok := quick.Value(reflect.TypeFor[randomPart](), r)
	if !ok {
		return zoo{}
	}
	part := v.Interface().(randomPart)
	z := zoo{
		embedded: embedded{part.Text}, Optional: part.Optional, Bool: part.Bool, I8: part.I8, I: part.I, U32: part.U32,
		U64: part.U64, F: part.F, Text: part.Text, Bytes: part.Bytes, Array: part.Array, List: part.List, Map: part.Map,
		Ptr: part.Ptr, Quoted: part.Quoted, QPtr: part.QPtr, No: part.Text, hidden: part.I,
	}
	z.Big.SetInt64(part.Quoted)
	if rand.IntN(2) == 0 {
		z.Any, z.Left = part.Text, &z.Zero
	}
	return z
}

type randomPart struct {
	Optional *Optional
	Bool     bool
	I8       int8
	I        int
	U32      uint32
	U64      uint64
	F        float32
	Text     string
	Bytes    []byte
	Array    [2]int8
	List     []*element
	Map      map[int]map[string][]bool
	Ptr      **int
	Quoted   int64
	QPtr     *bool
}
