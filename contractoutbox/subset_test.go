package contractoutbox

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

func parsed(t *testing.T, text string) *jsonschema.Schema {
	t.Helper()
	s := &jsonschema.Schema{}
	if err := json.Unmarshal([]byte(text), s); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

func accepts(t *testing.T, s *jsonschema.Schema, payload any) bool {
	t.Helper()
	r, err := s.CloneSchemas().Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r.Validate(payload) == nil
}

// Each rule in both directions. A payload that the writer may write, and that the reader's schema
// refuses by the validator's word, proves each difference; where nothing is found, the payload is
// accepted.
func TestRules(t *testing.T) {
	object := func(properties, required string) string {
		return fmt.Sprintf(`{"type":"object","properties":{%s},"required":[%s]}`, properties, required)
	}
	for name, tc := range map[string]struct {
		release, now string
		// What the new consumer says to the old payload, and the old one to the new payload. Empty:
		// nothing.
		backward, forward      string
		oldPayload, newPayload string
	}{
		"new required field": {
			release:  object(`"a":{"type":"string"}`, `"a"`),
			now:      object(`"a":{"type":"string"},"b":{"type":"integer"}`, `"a","b"`),
			backward: "b: was added, and is required", oldPayload: `{"a":""}`, newPayload: `{"a":"","b":1}`,
		},
		"new optional field": {
			release:    object(`"a":{"type":"string"}`, `"a"`),
			now:        object(`"a":{"type":"string"},"b":{"type":"integer"}`, `"a"`),
			oldPayload: `{"a":""}`, newPayload: `{"a":"","b":1}`,
		},
		"removed required field": {
			release: object(`"a":{"type":"string"},"b":{"type":"integer"}`, `"a","b"`),
			now:     object(`"a":{"type":"string"}`, `"a"`),
			forward: "b: was removed", oldPayload: `{"a":"","b":1}`, newPayload: `{"a":""}`,
		},
		"removed optional field": {
			release:    object(`"a":{"type":"string"},"b":{"type":"integer"}`, `"a"`),
			now:        object(`"a":{"type":"string"}`, `"a"`),
			oldPayload: `{"a":"","b":1}`, newPayload: `{"a":""}`,
		},
		"renamed field": {
			release: object(`"a":{"type":"string"}`, `"a"`), now: object(`"b":{"type":"string"}`, `"b"`),
			backward: "b: was added, and is required", forward: "a: was removed",
			oldPayload: `{"a":""}`, newPayload: `{"b":""}`,
		},
		"field becomes required": {
			release: object(`"a":{"type":"string"}`, ``), now: object(`"a":{"type":"string"}`, `"a"`),
			backward: "a: became required", oldPayload: `{}`, newPayload: `{"a":""}`,
		},
		"field becomes optional": {
			release: object(`"a":{"type":"string"}`, `"a"`), now: object(`"a":{"type":"string"}`, ``),
			forward: "a: became optional", oldPayload: `{"a":""}`, newPayload: `{}`,
		},
		"changed type": {
			release: object(`"a":{"type":"string"}`, `"a"`), now: object(`"a":{"type":"integer"}`, `"a"`),
			backward:   `a: type changed from "string" to "integer"`,
			forward:    `a: type changed from "string" to "integer"`,
			oldPayload: `{"a":""}`, newPayload: `{"a":1}`,
		},
		"integer becomes number": {
			release: `{"type":"integer"}`, now: `{"type":"number"}`,
			forward:    `: type changed from "integer" to "number"`,
			oldPayload: `1`, newPayload: `1.5`,
		},
		"may become null": {
			release: `{"type":"string"}`, now: `{"type":["string","null"]}`,
			forward: `: type changed from "string" to "string or null"`, oldPayload: `""`, newPayload: `null`,
		},
		"no longer null": {
			release: `{"type":["string","null"]}`, now: `{"type":"string"}`,
			backward: `: type changed from "string or null" to "string"`, oldPayload: `null`, newPayload: `""`,
		},
		"anything becomes something": {
			release: `{}`, now: `{"type":"object"}`, backward: `: type changed from "anything" to "object"`,
			oldPayload: `1`, newPayload: `{}`,
		},
		"narrowed enum": {
			release: `{"type":"string","enum":["a","b"]}`, now: `{"type":"string","enum":["a"]}`,
			backward: `: value "b" was removed from the list`, oldPayload: `"b"`, newPayload: `"a"`,
		},
		"widened enum": {
			release: `{"type":"string","enum":["a"]}`, now: `{"type":"string","enum":["a","b"]}`,
			forward: `: value "b" was added to the list`, oldPayload: `"a"`, newPayload: `"b"`,
		},
		"new enum": {
			release: `{"type":"string"}`, now: `{"type":"string","enum":["a"]}`,
			backward: `: the list of values changed from none to ["a"]`, oldPayload: `"c"`, newPayload: `"a"`,
		},
		"enum of another type": {
			release: `{"type":"string","enum":["a"]}`, now: `{"type":"integer"}`,
			backward: `: type changed from "string" to "integer"`, forward: `: type changed from "string" to "integer"`,
			oldPayload: `"a"`, newPayload: `1`,
		},
		"raised minimum": {
			release: `{"type":"integer","minimum":0}`, now: `{"type":"integer","minimum":1}`,
			backward: ": minimum changed from 0 to 1", oldPayload: `0`, newPayload: `1`,
		},
		"exclusive minimum": {
			release: `{"type":"number","minimum":0}`, now: `{"type":"number","exclusiveMinimum":0}`,
			backward: ": minimum changed from 0 to 0", oldPayload: `0`, newPayload: `1`,
		},
		"narrower integer": {
			release: `{"type":"integer"}`, now: `{"type":"integer","maximum":127}`,
			backward: ": maximum changed from none to 127", oldPayload: `128`, newPayload: `1`,
		},
		"multiple": {
			release: `{"type":"integer"}`, now: `{"type":"integer","multipleOf":5}`,
			backward: ": multipleOf changed from none to 5", oldPayload: `7`, newPayload: `5`,
		},
		"shorter text": {
			release: `{"type":"string","maxLength":9}`, now: `{"type":"string","maxLength":3}`,
			backward: ": maxLength changed from 9 to 3", oldPayload: `"1234"`, newPayload: `"1"`,
		},
		"longer text": {
			release: `{"type":"string"}`, now: `{"type":"string","minLength":1}`,
			backward: ": minLength changed from none to 1", oldPayload: `""`, newPayload: `"1"`,
		},
		"pattern": {
			release: `{"type":"string"}`, now: `{"type":"string","pattern":"^a"}`,
			backward: `: pattern changed from none to "^a"`, oldPayload: `"b"`, newPayload: `"a"`,
		},
		"list of another type": {
			release: `{"type":"array","items":{"type":"string"}}`, now: `{"type":"array","items":{"type":"boolean"}}`,
			backward:   `[]: type changed from "string" to "boolean"`,
			forward:    `[]: type changed from "string" to "boolean"`,
			oldPayload: `["a"]`, newPayload: `[true]`,
		},
		"shorter list": {
			release: `{"type":"array","maxItems":2}`, now: `{"type":"array","maxItems":1}`,
			backward: ": maxItems changed from 2 to 1", oldPayload: `[1,2]`, newPayload: `[1]`,
		},
		"list of different elements": {
			release: `{"type":"array"}`, now: `{"type":"array","uniqueItems":true}`,
			backward: ": uniqueItems changed from false to true", oldPayload: `[1,1]`, newPayload: `[1]`,
		},
		"map of another type": {
			release:    `{"type":"object","additionalProperties":{"type":"string"}}`,
			now:        `{"type":"object","additionalProperties":{"type":"integer"}}`,
			backward:   `{}: type changed from "string" to "integer"`,
			forward:    `{}: type changed from "string" to "integer"`,
			oldPayload: `{"x":"a"}`, newPayload: `{"x":1}`,
		},
		"map becomes object": {
			release:    `{"type":"object","additionalProperties":{"type":"string"}}`,
			now:        object(`"x":{"type":"integer"}`, ``),
			backward:   `x: type changed from "string" to "integer"`,
			forward:    `x: type changed from "string" to "integer"`,
			oldPayload: `{"x":"a"}`, newPayload: `{"x":1}`,
		},
		"further fields are refused": {
			release:  object(`"a":{"type":"string"},"b":{"type":"string"}`, ``),
			now:      `{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}`,
			backward: "b: is no longer allowed", oldPayload: `{"b":""}`, newPayload: `{"a":""}`,
		},
		"deep in the data": {
			release: object(`"l":{"type":"array","items":`+object(`"s":{"type":"string"}`, `"s"`)+`}`, `"l"`),
			now: object(`"l":{"type":"array","items":`+
				object(`"s":{"type":"string","maxLength":1}`, `"s"`)+`}`, `"l"`),
			backward: "l[].s: maxLength changed from none to 1", oldPayload: `{"l":[{"s":"12"}]}`,
			newPayload: `{"l":[{"s":"1"}]}`,
		},
		"other texts": {
			release: `{"type":"string","description":"a"}`, now: `{"type":"string","description":"b","x-pii":true}`,
			oldPayload: `""`, newPayload: `""`,
		},
		"a keyword that is not compared": {
			release: `{"type":"integer"}`, now: `{"type":"integer","not":{"const":1}}`,
			backward: "in a way that cannot be judged", forward: "in a way that cannot be judged",
			oldPayload: `1`, newPayload: "",
		},
		"a keyword that is not compared and the same": {
			release: `{"oneOf":[{"type":"string"}]}`, now: `{"oneOf":[{"type":"string"}]}`, oldPayload: `""`,
			newPayload: `""`,
		},
	} {
		release, now := parsed(t, tc.release), parsed(t, tc.now)
		for _, direction := range []struct {
			name, want, payload string
			writer, reader      *jsonschema.Schema
			forward             bool
		}{
			{"backward", tc.backward, tc.oldPayload, release, now, false},
			{"forward", tc.forward, tc.newPayload, now, release, true},
		} {
			var lines []string
			for _, d := range differences(direction.writer, direction.reader, direction.forward) {
				lines = append(lines, d.path+": "+d.text)
			}
			got := strings.Join(lines, "\n")
			if (direction.want == "") != (got == "") || !strings.Contains(got, direction.want) || len(lines) > 1 {
				t.Errorf("%s, %s: %q, want %q", name, direction.name, got, direction.want)
			}
			if direction.payload == "" {
				continue
			}
			var payload any
			if err := json.Unmarshal([]byte(direction.payload), &payload); err != nil {
				t.Fatal(err)
			}
			if !accepts(t, direction.writer, payload) {
				t.Errorf("%s, %s: the writer cannot write %s", name, direction.name, direction.payload)
			}
			if accepts(t, direction.reader, payload) != (direction.want == "") {
				t.Errorf("%s, %s: the validator disagrees about %s", name, direction.name, direction.payload)
			}
		}
	}
}

// A text of another format is a difference, although validators do not look at it: consumers do.
func TestFormatsAreCompared(t *testing.T) {
	plain, moment := parsed(t, `{"type":"string"}`), parsed(t, `{"type":"string","format":"date-time"}`)
	base64 := parsed(t, `{"type":"string","contentEncoding":"base64"}`)
	for name, tc := range map[string]struct {
		writer, reader *jsonschema.Schema
		want           int
	}{
		"text to moment": {plain, moment, 1}, "moment to text": {moment, plain, 0}, "text to bytes": {plain, base64, 1},
		"bytes to text": {base64, plain, 1},
	} {
		if got := differences(tc.writer, tc.reader, false); len(got) != tc.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

var seed = flag.Uint64("schemas.seed", 0, "run one pair of random schemas")

// Whatever a writer may write by its schema is accepted by a reader whose schema is compatible, by
// the validator's word. And the comparison does not simply refuse everything.
func TestCompatibleMeansAccepted(t *testing.T) {
	pairs, compatible, payloads, refused, shown := 0, 0, 0, 0, 0
	first, last := uint64(1), uint64(1000)
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
