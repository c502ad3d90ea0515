package contractoutbox

import (
	"encoding/json"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

var seed = flag.Uint64("schemas.seed", 0, "run one pair of random schemas")

// If the comparison calls two schemas compatible, the validator accepts every payload of the writer
// by the reader's schema. The comparison calls enough pairs compatible, so it does not refuse
// everything.
func TestCompatibleMeansAccepted(t *testing.T) {
	pairs, compatible, payloads, refused, shown := 0, 0, 0, 0, 0
	first, last := uint64(1), uint64(400)
	if *seed > 0 {
		first, last = *seed, *seed
	}
	for n := first; n <= last; n++ {
		r := random{rand.New(rand.NewPCG(n, 1))}
		writer := r.schema(3)
		reader := writer.CloneSchemas()
		for range 1 + r.IntN(2) {
			reader = r.mutated(reader)
		}
		if r.IntN(2) == 0 {
			writer, reader = reader, writer
		}
		pairs++
		found := differences(writer, reader, false)
		if len(found) == 0 {
			compatible++
		}
		resolvedW, err := writer.CloneSchemas().Resolve(nil)
		if err != nil {
			t.Fatalf("seed %d: %v", n, err)
		}
		resolvedR, err := reader.CloneSchemas().Resolve(nil)
		if err != nil {
			t.Fatalf("seed %d: %v", n, err)
		}
		witness := false
		for range 20 {
			payload, ok := r.payload(writer)
			if !ok {
				continue
			}
			text, _ := json.Marshal(payload)
			if err := resolvedW.Validate(payload); err != nil {
				t.Fatalf("seed %d: the payload generator is wrong: %s, %v", n, text, err)
			}
			payloads++
			err := resolvedR.Validate(payload)
			witness = witness || err != nil
			if err != nil && len(found) == 0 {
				w, _ := json.Marshal(writer)
				rd, _ := json.Marshal(reader)
				t.Fatalf("seed %d: called compatible, but %s is refused: %v\nwriter %s\nreader %s", n, text, err, w, rd)
			}
		}
		if len(found) > 0 {
			refused++
			if witness {
				shown++
			}
		}
	}
	t.Logf("%d pairs, %d compatible, %d payloads; of %d refused pairs, %d had a refused payload", pairs, compatible,
		payloads, refused, shown)
	if *seed == 0 && (compatible < pairs/5 || refused < pairs/5 || shown < refused/2) {
		t.Error("the pairs are too much alike, or the comparison refuses too much")
	}
}

type random struct{ *rand.Rand }

func (r random) one(list ...string) string { return list[r.IntN(len(list))] }

func (r random) schema(depth int) *jsonschema.Schema {
	s := &jsonschema.Schema{}
	kinds := []string{"string", "integer", "number", "boolean", "object", "object", "array", "map", "any"}
	if depth == 0 {
		kinds = kinds[:4]
	}
	switch kind := r.one(kinds...); kind {
	case "any":
		return s
	case "map":
		s.Type, s.AdditionalProperties = "object", r.schema(depth-1)
	case "object":
		s.Type, s.Properties = "object", map[string]*jsonschema.Schema{}
		for _, name := range []string{"a", "b", "c"} {
			if r.IntN(3) > 0 {
				s.Properties[name] = r.schema(depth - 1)
				if r.IntN(2) == 0 {
					s.Required = append(s.Required, name)
				}
			}
		}
	case "array":
		s.Type, s.Items = "array", r.schema(depth-1)
		if r.IntN(3) == 0 {
			s.MaxItems = new(1 + r.IntN(3))
		}
	default:
		s.Type = kind
		r.limit(s)
	}
	if r.IntN(4) == 0 {
		nullable(s)
	}
	return s
}

// limit adds a keyword, or takes one away.
func (r random) limit(s *jsonschema.Schema) {
	types := typesOf(s)
	switch {
	case slices.Contains(types, "string"):
		s.Enum, s.MaxLength, s.MinLength, s.Pattern = nil, nil, nil, ""
		switch r.IntN(5) {
		case 0:
			s.MaxLength = new(1 + r.IntN(3))
		case 1:
			s.MinLength = new(r.IntN(3))
		case 2:
			s.Enum = []any{"x", "y", "z"}[:1+r.IntN(3)]
		}
	case slices.Contains(types, "integer"), slices.Contains(types, "number"):
		s.Minimum, s.Maximum, s.ExclusiveMinimum = nil, nil, nil
		switch r.IntN(5) {
		case 0:
			s.Minimum = new(float64(r.IntN(3)))
		case 1:
			s.Maximum = new(float64(3 + r.IntN(3)))
		case 2:
			s.ExclusiveMinimum = new(float64(r.IntN(3)))
		}
	}
}

// mutated returns s with a change somewhere.
func (r random) mutated(s *jsonschema.Schema) *jsonschema.Schema {
	s = s.CloneSchemas()
	s.Required = slices.Clone(s.Required)
	switch {
	case s.Items != nil && r.IntN(3) > 0:
		s.Items = r.mutated(s.Items)
	case s.Items != nil && r.IntN(2) == 0:
		s.MaxItems = new(r.IntN(4))
	case s.AdditionalProperties != nil && r.IntN(3) > 0:
		s.AdditionalProperties = r.mutated(s.AdditionalProperties)
	case s.Properties != nil && r.IntN(5) > 0:
		name := r.one("a", "b", "c")
		old, ok := s.Properties[name]
		switch {
		case !ok:
			s.Properties[name] = r.schema(1)
		case r.IntN(3) > 0:
			s.Properties[name] = r.mutated(old)
		case slices.Contains(s.Required, name):
			s.Required = slices.DeleteFunc(s.Required, func(n string) bool { return n == name })
		case r.IntN(2) == 0:
			s.Required = append(s.Required, name)
		default:
			delete(s.Properties, name)
		}
	case r.IntN(4) == 0:
		return r.schema(1)
	case r.IntN(3) == 0 && s.Type == "integer":
		s.Type = "number"
	case r.IntN(3) == 0 && s.Types == nil && s.Type != "":
		nullable(s)
	default:
		r.limit(s)
	}
	return s
}

// payload returns something that a writer with the schema writes: only properties that it declares.
// ok is false where nothing was found.
func (r random) payload(s *jsonschema.Schema) (any, bool) {
	if s.Enum != nil {
		return s.Enum[r.IntN(len(s.Enum))], true
	}
	types := typesOf(s)
	if len(types) == 0 {
		types = allTypes
	}
	switch r.one(types...) {
	case "null":
		return nil, true
	case "boolean":
		return r.IntN(2) == 0, true
	case "string":
		low, high := 0, 5
		if s.MinLength != nil {
			low = *s.MinLength
		}
		if s.MaxLength != nil {
			high = *s.MaxLength
		}
		return strings.Repeat(r.one("x", "y"), low+r.IntN(high-low+1)), true
	case "integer":
		return r.number(s, 1)
	case "number":
		return r.number(s, 2)
	case "array":
		n := r.IntN(4)
		if s.MaxItems != nil {
			n = min(n, *s.MaxItems)
		}
		list := []any{}
		for range n {
			e, ok := r.payload(orAnything(s.Items))
			if !ok {
				return nil, false
			}
			list = append(list, e)
		}
		return list, true
	}
	object := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if slices.Contains(s.Required, name) || r.IntN(2) == 0 {
			v, ok := r.payload(s.Properties[name])
			if !ok {
				return nil, false
			}
			object[name] = v
		}
	}
	if s.AdditionalProperties != nil || s.Properties == nil {
		for range r.IntN(3) {
			v, ok := r.payload(orAnything(s.AdditionalProperties))
			if !ok {
				return nil, false
			}
			object[r.one("a", "b", "c", "d")] = v
		}
	}
	for _, name := range s.Required { // required and not declared: anything
		if _, ok := object[name]; !ok {
			object[name] = 1.0
		}
	}
	return object, true
}

func (r random) number(s *jsonschema.Schema, parts int) (any, bool) {
	for range 50 {
		n := float64(r.IntN(20*parts))/float64(parts) - 5
		if (s.Minimum == nil || n >= *s.Minimum) && (s.Maximum == nil || n <= *s.Maximum) &&
			(s.ExclusiveMinimum == nil || n > *s.ExclusiveMinimum) {
			return n, true
		}
	}
	return nil, false
}
