package contractoutbox

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// page collects the lines of a Markdown file.
type page struct{ bytes.Buffer }

func (p *page) line(format string, args ...any) {
	_, _ = fmt.Fprintf(p, format+"\n", args...) // a Buffer takes everything
}

// paragraph wraps a text at the width of a page.
func (p *page) paragraph(text string) {
	column := 0
	for word := range strings.FieldsSeq(text) {
		switch n := len([]rune(word)); {
		case column == 0:
			column = n
		case column+1+n > 100:
			p.WriteByte('\n')
			column = n
		default:
			p.WriteByte(' ')
			column += 1 + n
		}
		p.WriteString(word)
	}
	p.line("\n")
}

// cell is a text in a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// quoted is a name in a text.
func quoted(name string) string { return "`" + name + "`" }

// markdown is the page of an event.
func (g *Generator) markdown(e event) []byte {
	p := &page{}
	p.line("<!-- %s -->", generated)
	p.line("# %s\n", e.Type)
	if e.Deprecated != "" {
		p.paragraph("**Deprecated**: " + e.Deprecated)
	}
	p.paragraph(e.Description)
	p.line("| | |")
	p.line("|---|---|")
	row := func(name, text string) { p.line("| %s | %s |", name, text) }
	row("owner", cell(e.Owner))
	row("version", versions(e))
	row("topic", topic(e))
	row("content type", quoted("application/json"))
	row("identity", "header `event_id`: a consumer deduplicates by it")
	row("order", order(e))
	row("compatibility", g.promise())
	p.line("")
	p.line("## Data, version %d\n", e.Version)
	p.version(e, e.current())
	if notes := strings.TrimSpace(e.Notes); notes != "" {
		p.line("## For consumers\n\n%s\n", notes)
	}
	for _, v := range slices.Backward(e.versions[:len(e.versions)-1]) {
		p.line("## Version %d\n", v.Number)
		p.paragraph(fmt.Sprintf("Producers no longer write it. Old messages, replays and dead letters have it. "+
			"Consumers in Go read it as version %d.", e.Version))
		p.version(e, v)
	}
	return append(bytes.TrimRight(p.Bytes(), "\n"), '\n')
}

func versions(e event) string {
	if first := e.versions[0].Number; first < e.Version {
		return fmt.Sprintf("%d; consumers read %d to %[1]d; header `schema_version`", e.Version, first)
	}
	return fmt.Sprintf("%d; header `schema_version`", e.Version)
}

func topic(e event) string {
	text := quoted(cell(address(e.Topic, e.AggregateType, e.Type)))
	if e.Topic == "" {
		text += ", unless the producer routes it elsewhere"
	}
	return text
}

func order(e event) string {
	what := quoted(cmp.Or(e.Key, e.Aggregate, cell(e.AggregateType)))
	switch {
	case e.Key == "" && e.Aggregate == "" && e.AggregateType == "":
		return "none, unless the producer sets a key"
	case e.Key == "" && e.Aggregate != "" && e.AggregateType != "":
		what += " of " + quoted(cell(e.AggregateType))
	}
	return fmt.Sprintf("events of one %s, in the order of their commits", what)
}

func (g *Generator) promise() string {
	switch g.cfg.Compatibility {
	case Backward:
		return "backward: within a version, newer consumers read what older producers wrote"
	case Forward:
		return "forward: within a version, older consumers read what newer producers write"
	case Full:
	}
	return "full: within a version, older and newer producers and consumers read each other"
}

// fields is the table of an object's properties, including objects inside.
func (p *page) fields(s *jsonschema.Schema) {
	if len(s.Properties) == 0 {
		p.paragraph("It has no fields.")
		return
	}
	p.line("| field | type | required | meaning |")
	p.line("|---|---|---|---|")
	p.properties("", s)
	p.line("")
}

func (p *page) properties(prefix string, s *jsonschema.Schema) {
	for _, name := range s.PropertyOrder {
		property := s.Properties[name]
		required := "no"
		if slices.Contains(s.Required, name) {
			required = "yes"
		}
		meaning := cell(property.Description)
		if property.Extra[piiKeyword] == true {
			meaning = strings.TrimSpace("**personal data** " + meaning)
		}
		p.line("| %s | %s | %s | %s |", quoted(prefix+name), cell(typeText(property)), required, meaning)
		var path strings.Builder
		path.WriteString(prefix + name)
		for property != nil {
			switch {
			case property.Items != nil:
				path.WriteString("[]")
				property = property.Items
				continue
			case property.AdditionalProperties != nil && len(property.Properties) == 0:
				path.WriteString("{}")
				property = property.AdditionalProperties
				continue
			}
			p.properties(path.String()+".", property)
			break
		}
	}
}

// typeText describes in a few words what a schema allows.
func typeText(s *jsonschema.Schema) string {
	var parts []string
	for _, t := range typesOf(s) {
		switch {
		case t == "array" && s.Items != nil:
			t = "list of " + typeText(s.Items)
		case t == "object" && s.AdditionalProperties != nil:
			t = "map of " + typeText(s.AdditionalProperties)
		case t == "string" && s.Format != "":
			t = s.Format
		case t == "string" && s.ContentEncoding != "":
			t = s.ContentEncoding
		}
		parts = append(parts, t)
	}
	text := strings.Join(parts, " or ")
	if text == "" {
		text = "anything"
	}
	if s.Enum != nil {
		values, _ := json.Marshal(s.Enum)
		text += ": one of " + strings.ReplaceAll(strings.Trim(string(values), "[]"), ",", ", ")
	}
	if low, high := s.Minimum, s.Maximum; low != nil && high != nil {
		text += fmt.Sprintf(", %v to %v", number(*low), number(*high))
	} else if low != nil {
		text += fmt.Sprintf(", at least %v", number(*low))
	} else if high != nil {
		text += fmt.Sprintf(", at most %v", number(*high))
	}
	if s.MinLength != nil {
		text += fmt.Sprintf(", %d or more characters", *s.MinLength)
	}
	if s.MaxLength != nil {
		text += fmt.Sprintf(", up to %d characters", *s.MaxLength)
	}
	if s.Pattern != "" {
		text += " like " + quoted(s.Pattern)
	}
	return text
}

// number is a number without an exponent.
func number(f float64) string {
	b, _ := json.Marshal(f)
	return string(b)
}

func (p *page) version(e event, v version) {
	p.fields(v.schema)
	p.line("Schema: [%s](%[1]s)\n", path.Base(e.schemaPath(v)))
	var example bytes.Buffer
	if json.Indent(&example, v.ExampleJSON, "", "  ") == nil {
		p.line("```json\n%s\n```\n", example.String())
	}
}

// index is the list of all events.
func (g *Generator) index() []byte {
	p := &page{}
	p.line("<!-- %s -->", generated)
	p.line("# %s\n", g.cfg.Title)
	if g.cfg.Description != "" {
		p.paragraph(g.cfg.Description)
	}
	p.paragraph("The same as an AsyncAPI document: [asyncapi.json](asyncapi.json).")
	p.line("| event | version | topic | owner | what happened |")
	p.line("|---|---|---|---|---|")
	for _, e := range g.events {
		text := cell(e.Description)
		if e.Deprecated != "" {
			text = "**deprecated** " + text
		}
		to := address(e.Topic, e.AggregateType, e.Type)
		p.line("| [%s](%s) | %d | %s | %s | %s |", cell(e.Type), e.page(), e.Version, quoted(cell(to)),
			cell(e.Owner), text)
	}
	return p.Bytes()
}
