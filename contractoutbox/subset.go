package contractoutbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// difference is a place where a reader may refuse what a writer writes.
type difference struct {
	path, rule string
	text       string // what changed since the release
	advice     string
}

// comparison compares what a writer may write with what a reader accepts. The writer writes the
// properties that its schema declares and no others. The reader accepts properties that its schema
// does not know.
type comparison struct {
	forward bool // the writer is of the present; otherwise the reader is
	found   []difference
}

// differences returns nothing if the reader accepts whatever the writer may write.
func differences(writer, reader *jsonschema.Schema, forward bool) []difference {
	c := &comparison{forward: forward}
	c.reads("", writer, reader)
	return c.found
}

func (c *comparison) add(path, rule, advice, format string, args ...any) {
	c.found = append(c.found, difference{strings.TrimPrefix(path, "."), rule, fmt.Sprintf(format, args...), advice})
}

// changed reports a keyword whose value the reader does not share.
func (c *comparison) changed(path, rule, what string, writer, reader any) {
	before, now := writer, reader
	if c.forward {
		before, now = reader, writer
	}
	c.add(path, rule, "", "%s changed from %s to %s", what, shown(before), shown(now))
}

// shown is a value of a keyword in a text.
func shown(v any) string {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return "null"
	case reflect.Pointer, reflect.Slice:
		if r.IsNil() {
			return "none"
		}
	default:
	}
	if v == "" {
		return "none"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

var allTypes = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

func (c *comparison) reads(path string, w, r *jsonschema.Schema) {
	switch {
	case never(w):
		return
	case never(r):
		c.add(path, "refused", "", "is no longer allowed")
		return
	case uncompared(w) || uncompared(r):
		a, errA := json.Marshal(w)
		b, errB := json.Marshal(r)
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			c.add(path, "other", "", "has a schema of Config.Schemas that changed in a way that cannot be judged")
		}
		return
	case w.Enum != nil:
		c.values(path, w, r)
		return
	}
	wt, rt := typesOf(w), typesOf(r)
	if len(wt) == 0 {
		wt = allTypes
	}
	for _, t := range wt {
		if len(rt) > 0 && !slices.Contains(rt, t) && (t != "integer" || !slices.Contains(rt, "number")) {
			c.changed(path, "type", "type", text(w), text(r))
			return
		}
	}
	if r.Enum != nil {
		c.changed(path, "enum", "the list of values", w.Enum, r.Enum)
		return
	}
	if slices.Contains(wt, "number") || slices.Contains(wt, "integer") {
		c.numbers(path, w, r)
	}
	if slices.Contains(wt, "string") {
		c.strings(path, w, r)
	}
	if slices.Contains(wt, "array") {
		c.lists(path, w, r)
	}
	if slices.Contains(wt, "object") {
		c.objects(path, w, r)
	}
}

// text is the types of a schema in words.
func text(s *jsonschema.Schema) string {
	if types := typesOf(s); len(types) > 0 {
		return strings.Join(types, " or ")
	}
	return "anything"
}

// values tries each value of the writer's list.
func (c *comparison) values(path string, w, r *jsonschema.Schema) {
	one := r.CloneSchemas()
	listed := one.Enum != nil
	one.Enum = nil
	resolved, err := one.Resolve(nil)
	if err != nil {
		c.add(path, "other", "", "has a schema that cannot be read: %v", err)
		return
	}
	for _, v := range w.Enum {
		switch {
		case resolved.Validate(v) != nil:
			c.changed(path, "type", "type", text(w), text(r))
			return
		case listed && !slices.ContainsFunc(r.Enum, func(e any) bool { return same(e, v) }):
			what, advice := "value %s was removed from the list", "Keep it in the list"
			if c.forward {
				what = "value %s was added to the list"
				advice = "Let consumers take unknown values first: drop the enum and release"
			}
			c.add(path, "enum", advice, what, shown(v))
		}
	}
}

func same(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

func (c *comparison) numbers(path string, w, r *jsonschema.Schema) {
	// The least number that each may have, and whether it is excluded.
	above := func(s *jsonschema.Schema) (*float64, bool) {
		low, excluded := s.Minimum, false
		if e := s.ExclusiveMinimum; e != nil && (low == nil || *e >= *low) {
			low, excluded = e, true
		}
		return low, excluded
	}
	below := func(s *jsonschema.Schema) (*float64, bool) {
		high, excluded := s.Maximum, false
		if e := s.ExclusiveMaximum; e != nil && (high == nil || *e <= *high) {
			high, excluded = e, true
		}
		return high, excluded
	}
	wLow, wOut := above(w)
	if rLow, rOut := above(r); rLow != nil && (wLow == nil || *wLow < *rLow || *wLow == *rLow && rOut && !wOut) {
		c.changed(path, "range", "minimum", wLow, rLow)
	}
	wHigh, wOut := below(w)
	if rHigh, rOut := below(r); rHigh != nil && (wHigh == nil || *wHigh > *rHigh || *wHigh == *rHigh && rOut && !wOut) {
		c.changed(path, "range", "maximum", wHigh, rHigh)
	}
	if r.MultipleOf != nil && (w.MultipleOf == nil || *w.MultipleOf != *r.MultipleOf) {
		c.changed(path, "range", "multipleOf", w.MultipleOf, r.MultipleOf)
	}
}

func (c *comparison) strings(path string, w, r *jsonschema.Schema) {
	c.lengths(path, "length", "minLength", "maxLength", w.MinLength, r.MinLength, w.MaxLength, r.MaxLength)
	for _, keyword := range []struct{ name, w, r string }{
		{"pattern", w.Pattern, r.Pattern},
		{"format", w.Format, r.Format},
		{"contentEncoding", w.ContentEncoding, r.ContentEncoding},
	} {
		if keyword.r != "" && keyword.w != keyword.r {
			c.changed(path, "format", keyword.name, keyword.w, keyword.r)
		}
	}
	if reader := r.Extra[textKeyword]; reader != nil && reader != w.Extra[textKeyword] {
		c.changed(path, "format", "the type that reads the text", w.Extra[textKeyword], reader)
	}
	if w.ContentEncoding != "" && r.ContentEncoding == "" { // bytes would be read as text
		c.changed(path, "format", "contentEncoding", w.ContentEncoding, r.ContentEncoding)
	}
}

func (c *comparison) lengths(path, rule, low, high string, wLow, rLow, wHigh, rHigh *int) {
	if rLow != nil && *rLow > 0 && (wLow == nil || *wLow < *rLow) {
		c.changed(path, rule, low, wLow, rLow)
	}
	if rHigh != nil && (wHigh == nil || *wHigh > *rHigh) {
		c.changed(path, rule, high, wHigh, rHigh)
	}
}

func (c *comparison) lists(path string, w, r *jsonschema.Schema) {
	c.lengths(path, "length", "minItems", "maxItems", w.MinItems, r.MinItems, w.MaxItems, r.MaxItems)
	if r.UniqueItems && !w.UniqueItems {
		c.changed(path, "length", "uniqueItems", w.UniqueItems, r.UniqueItems)
	}
	if r.Items != nil && (w.MaxItems == nil || *w.MaxItems > 0) {
		c.reads(path+"[]", orAnything(w.Items), r.Items)
	}
}

func (c *comparison) objects(path string, w, r *jsonschema.Schema) {
	for _, name := range r.Required {
		if !slices.Contains(w.Required, name) {
			c.required(path, name, w, r)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.Properties)) {
		expected, ok := r.Properties[name]
		if !ok {
			expected = orAnything(r.AdditionalProperties)
		}
		c.reads(path+"."+name, w.Properties[name], expected)
	}
	further := w.AdditionalProperties
	if further == nil && w.Properties == nil {
		further = &jsonschema.Schema{} // any object
	}
	if further == nil || never(further) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(r.Properties)) {
		if _, ok := w.Properties[name]; !ok {
			c.reads(path+"."+name, further, r.Properties[name])
		}
	}
	if r.AdditionalProperties != nil {
		c.reads(path+"{}", further, r.AdditionalProperties)
	}
}

// required reports a property that the reader needs and the writer may leave out.
func (c *comparison) required(path, name string, w, r *jsonschema.Schema) {
	_, written := w.Properties[name]
	at := path + "." + name
	switch {
	case c.forward && written:
		c.add(at, "optional", "Keep writing it (no omitempty)", "became optional")
	case c.forward:
		advice := "Keep it as long as a consumer needs it"
		if other := renamed(r, w, name); other != "" {
			advice = fmt.Sprintf("If it was renamed to %q, write both for a while, the new one with omitempty", other)
		}
		c.add(at, "removed", advice, "was removed")
	case written:
		c.add(at, "required", "Make it optional (omitempty)", "became required")
	default:
		advice := "Make it optional (omitempty)"
		if other := renamed(r, w, name); other != "" {
			advice = fmt.Sprintf("If it was %q, write both for a while, the new one with omitempty", other)
		}
		c.add(at, "required", advice, "was added, and is required")
	}
}

// renamed returns the one property that only the other side has, if it looks like the named one.
func renamed(has, other *jsonschema.Schema, name string) string {
	found := ""
	for _, candidate := range slices.Sorted(maps.Keys(other.Properties)) {
		if _, both := has.Properties[candidate]; both || has.Properties[name] == nil ||
			len(differences(has.Properties[name], other.Properties[candidate], false)) > 0 {
			continue
		}
		if found != "" {
			return ""
		}
		found = candidate
	}
	return found
}

func orAnything(s *jsonschema.Schema) *jsonschema.Schema {
	if s == nil {
		return &jsonschema.Schema{}
	}
	return s
}

// never reports whether s is the schema false.
func never(s *jsonschema.Schema) bool {
	text, err := json.Marshal(s)
	return err == nil && string(text) == "false"
}

// compared are the keywords that reads evaluates, and keywords that refuse nothing.
var compared = []string{
	"type", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength",
	"maxLength", "pattern", "format", "contentEncoding", "items", "minItems", "maxItems", "uniqueItems", "properties",
	"required",
	"additionalProperties",
	"title", "description", "default", "deprecated", "readOnly", "writeOnly", "examples", "$comment", "$id", "$schema",
	"contentMediaType",
}

// uncompared reports whether s has a keyword that reads does not know.
func uncompared(s *jsonschema.Schema) bool {
	text, err := json.Marshal(s)
	if err != nil {
		return true
	}
	var keywords map[string]json.RawMessage
	if json.Unmarshal(text, &keywords) != nil {
		return false // true
	}
	for name := range keywords {
		if !slices.Contains(compared, name) && !strings.HasPrefix(name, "x-") {
			return true
		}
	}
	return false
}
