package contractoutbox

import (
	"encoding/json"
	"fmt"
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

// The test has each rule in both directions. For each difference it has a payload that the writer's
// schema accepts and the reader's schema refuses, as the validator says. If there is no difference,
// both accept the payload.
func TestRules(t *testing.T) {
	object := func(properties, required string) string {
		return fmt.Sprintf(`{"type":"object","properties":{%s},"required":[%s]}`, properties, required)
	}
	for name, tc := range map[string]struct {
		release, now string
		// backward is the difference for the new consumer with the old payload, forward for the old
		// consumer with the new payload. Empty means that there is none.
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
		"any object becomes one with fields": {
			release: `{"type":"object"}`, now: object(`"a":{"type":"integer"}`, ``),
			backward: `a: type changed from "anything" to "integer"`, oldPayload: `{"a":"x"}`, newPayload: `{"a":1}`,
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
