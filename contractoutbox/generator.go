package contractoutbox

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/ormoutbox/ormoutbox/core/contract"
)

// Config configures a Generator. The zero value has the defaults.
type Config struct {
	// Title and Description head README.md and the AsyncAPI document. Default of Title: Events.
	Title, Description string
	// Version is info.version of the AsyncAPI document. Default: 1.0.0. Nothing here depends on it.
	Version string
	// BaseURL is where the schema files are published: the $id of each begins with it, such as
	// "https://shop.example/events/". Default: no $id.
	BaseURL string
	// Schemas are for types with a MarshalJSON of their own, and for types that contain themselves.
	Schemas map[reflect.Type]*jsonschema.Schema
	// Compatibility is what a change within a version must keep. Default: Full.
	Compatibility Compatibility
	// Allow has the ID of each Break that is intended. Every other one is reported.
	Allow []string
}

// Compatibility selects the programs that a change within a version must not break.
type Compatibility uint8

// Compatibilities.
const (
	// Full is both of the others: producers and consumers are deployed in any order.
	Full Compatibility = iota
	// Backward: present consumers read data of the release's producers. Consumers are deployed
	// before producers. Replays and dead letters need it too.
	Backward
	// Forward: consumers of the release read data of present producers. Producers are deployed
	// before consumers, and no event of the release is replayed.
	Forward
)

// String returns full, backward or forward.
func (c Compatibility) String() string {
	switch c {
	case Full:
		return "full"
	case Backward:
		return "backward"
	case Forward:
		return "forward"
	}
	return fmt.Sprintf("compatibility(%d)", uint8(c))
}

// Generator has the documents of a catalog. It is safe for use by several goroutines.
type Generator struct {
	cfg    Config
	events []event
	files  map[string][]byte
}

// event is a declaration with its schemas.
type event struct {
	contract.Info
	versions []version // ascending; the last is the current one
}

// address returns the topic of an event that core.Config.Routes do not name.
func address(topic, aggregateType, eventType string) string {
	return cmp.Or(topic, aggregateType, eventType)
}

type version struct {
	contract.Version
	schema   *jsonschema.Schema
	resolved *jsonschema.Resolved
}

func (e event) current() version { return e.versions[len(e.versions)-1] }

// errCatalog: New could not make the documents of the catalog. The text names every problem.
var errCatalog = errors.New("contractoutbox: catalog cannot be documented")

// New makes the documents of a catalog. The error names every problem: a type without a schema, a
// tag that does not fit its field, an example that breaks its own schema, two events that need the
// same file.
func New(c *contract.Catalog, cfg Config) (*Generator, error) {
	cfg.Title = cmp.Or(cfg.Title, "Events")
	cfg.Version = cmp.Or(cfg.Version, "1.0.0")
	g := &Generator{cfg: cfg, files: map[string][]byte{}}
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if cfg.Compatibility > Forward {
		bad("Config.Compatibility is %s", cfg.Compatibility)
	}
	if c == nil || len(c.Events()) == 0 {
		return nil, fmt.Errorf("%w: it is empty", errCatalog)
	}
	types := newSchemas(cfg.Schemas)
	for _, info := range c.Events() {
		e := event{Info: info}
		for _, v := range info.Versions {
			one, err := newVersion(types, v)
			if err != nil {
				bad("%s, version %d: %w", info.Type, v.Number, err)
				continue
			}
			e.versions = append(e.versions, one)
		}
		g.events = append(g.events, e)
	}
	if len(problems) == 0 {
		g.write(bad)
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("%w: %w", errCatalog, errors.Join(problems...))
	}
	return g, nil
}

func newVersion(types *schemas, v contract.Version) (version, error) {
	schema, err := types.of(v.Type, nil)
	if err != nil {
		return version{}, err
	}
	resolved, err := schema.CloneSchemas().Resolve(nil)
	if err != nil {
		return version{}, fmt.Errorf("schema: %w", err)
	}
	if err := validate(resolved, v.ExampleJSON); err != nil {
		return version{}, fmt.Errorf("the example breaks the schema: %w", err)
	}
	return version{v, schema, resolved}, nil
}

func validate(schema *jsonschema.Resolved, payload []byte) error {
	var v any
	if err := json.Unmarshal(payload, &v); err != nil {
		return err
	}
	return schema.Validate(v)
}

// write makes the files.
func (g *Generator) write(bad func(string, ...any)) {
	add := func(name string, content []byte, err error) {
		if err != nil {
			bad("%s: %w", name, err)
		}
		for other := range g.files { // equal names on some file systems
			if strings.EqualFold(other, name) {
				bad("two events need the file %s: give one of them another Spec.Domain", name)
			}
		}
		g.files[name] = content
	}
	for _, e := range g.events {
		add(e.page(), g.markdown(e), nil)
		for _, v := range e.versions {
			content, err := g.schemaFile(e, v)
			add(e.schemaPath(v), content, err)
		}
	}
	content, err := g.asyncAPI()
	add(asyncAPIFile, content, err)
	add(indexFile, g.index(), nil)
}

const (
	asyncAPIFile = "asyncapi.json"
	indexFile    = "README.md"
)

func (e event) page() string { return safe(e.Domain) + "/" + safe(e.Type) + ".md" }

func (e event) schemaPath(v version) string {
	return fmt.Sprintf("%s/%s.v%d.schema.json", safe(e.Domain), safe(e.Type), v.Number)
}

// safe makes a name fit for files and for the keys of AsyncAPI.
func safe(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '-'
	}, name)
	if strings.Trim(name, ".") == "" {
		return "-" + name
	}
	return name
}

// schemaFile returns the file of a version's schema. It begins with the id, the title and the
// example.
func (g *Generator) schemaFile(e event, v version) ([]byte, error) {
	head := struct {
		Schema      string            `json:"$schema"`
		ID          string            `json:"$id,omitempty"`
		Comment     string            `json:"$comment"`
		Title       string            `json:"title"`
		Description string            `json:"description"`
		Deprecated  bool              `json:"deprecated,omitempty"`
		Examples    []json.RawMessage `json:"examples"`
	}{
		Schema: draft, Comment: generated, Title: fmt.Sprintf("%s, version %d", e.Type, v.Number),
		Description: e.Description, Deprecated: e.Deprecated != "" || v.Number != e.Version,
		Examples: []json.RawMessage{v.ExampleJSON},
	}
	if g.cfg.BaseURL != "" {
		head.ID = strings.TrimSuffix(g.cfg.BaseURL, "/") + "/" + e.schemaPath(v)
	}
	names, err := indented(head)
	if err != nil {
		return nil, err
	}
	rest, err := indented(v.schema)
	if err != nil || !bytes.HasPrefix(rest, []byte("{\n")) { // a schema of Config.Schemas that allows anything
		return names, err
	}
	return append(append(bytes.TrimSuffix(names, []byte("\n}\n")), ',', '\n'), rest[2:]...), nil
}

// indented returns v as JSON that people read in diffs.
func indented(v any) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return []byte(b.String()), nil
}

// Files returns the documents by their paths, with slashes, relative to the folder of Write.
func (g *Generator) Files() map[string][]byte {
	files := maps.Clone(g.files)
	for name, content := range files {
		files[name] = slices.Clone(content)
	}
	return files
}

// errUnknown: the catalog has no event of the type, or not of the version.
var errUnknown = errors.New("contractoutbox: not in the catalog")

// Validate reports whether a payload matches the schema of a version: in a test of a producer, or
// of messages that another program wrote. An event or version that the catalog does not have is an
// error.
func (g *Generator) Validate(eventType string, number int, payload []byte) error {
	for _, e := range g.events {
		for _, v := range e.versions {
			if e.Type == eventType && v.Number == number {
				if err := validate(v.resolved, payload); err != nil {
					return fmt.Errorf("contractoutbox: %s, version %d: %w", eventType, number, err)
				}
				return nil
			}
		}
	}
	return fmt.Errorf("%w: %s, version %d", errUnknown, eventType, number)
}
