package contractoutbox

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/ormoutbox/ormoutbox/core"
)

// The types below are the parts of AsyncAPI 3.0 that are written, and read from a release.
// encoding/json sorts the keys of maps, so the file is the same each time.
type (
	document struct {
		AsyncAPI           string               `json:"asyncapi"`
		Info               documentInfo         `json:"info"`
		DefaultContentType string               `json:"defaultContentType"`
		Channels           map[string]channel   `json:"channels"`
		Operations         map[string]operation `json:"operations"`
		Components         components           `json:"components"`
	}
	documentInfo struct {
		Title       string `json:"title"`
		Version     string `json:"version"`
		Description string `json:"description,omitempty"`
		Generated   string `json:"x-generated"`
	}
	channel struct {
		Address  string               `json:"address"`
		Messages map[string]reference `json:"messages"`
	}
	operation struct {
		Action   string      `json:"action"`
		Channel  reference   `json:"channel"`
		Summary  string      `json:"summary"`
		Messages []reference `json:"messages"`
	}
	reference struct {
		Ref string `json:"$ref"`
	}
	components struct {
		Messages map[string]message `json:"messages"`
	}
	message struct {
		Name        string             `json:"name"`
		Title       string             `json:"title"`
		Summary     string             `json:"summary,omitempty"`
		ContentType string             `json:"contentType"`
		Tags        []tag              `json:"tags"`
		Headers     *jsonschema.Schema `json:"headers"`
		Payload     json.RawMessage    `json:"payload"`
		Examples    []example          `json:"examples"`

		EventType     string `json:"x-event-type"`
		EventVersion  int    `json:"x-event-version"`
		Current       bool   `json:"x-current"`
		Topic         string `json:"x-topic,omitempty"`
		Owner         string `json:"x-owner"`
		AggregateType string `json:"x-aggregate-type,omitempty"`
		Aggregate     string `json:"x-aggregate,omitempty"`
		Key           string `json:"x-key,omitempty"`
		Deprecated    string `json:"x-deprecated,omitempty"`
	}
	tag struct {
		Name string `json:"name"`
	}
	example struct {
		Payload json.RawMessage `json:"payload"`
	}
)

// asyncAPI writes the whole catalog. The schemas have only keywords of draft 7, which AsyncAPI's
// schemas include.
func (g *Generator) asyncAPI() ([]byte, error) {
	doc := document{
		AsyncAPI: "3.0.0",
		Info: documentInfo{
			Title: g.cfg.Title, Version: g.cfg.Version, Description: g.cfg.Description, Generated: generated,
		},
		DefaultContentType: "application/json",
		Channels:           map[string]channel{},
		Operations:         map[string]operation{},
		Components:         components{map[string]message{}},
	}
	for _, e := range g.events {
		address := address(e.Topic, e.AggregateType, e.Type)
		id := safe(address)
		c, ok := doc.Channels[id]
		if ok && c.Address != address {
			return nil, fmt.Errorf("the topics %q and %q have the same name in AsyncAPI: %s", c.Address, address, id)
		}
		if !ok {
			c = channel{address, map[string]reference{}}
		}
		doc.Channels[id] = c
		for _, v := range e.versions {
			name := fmt.Sprintf("%s.v%d", safe(e.Type), v.Number)
			if other, ok := doc.Components.Messages[name]; ok {
				return nil, fmt.Errorf("the event types %q and %q have the same name in AsyncAPI: %s", other.EventType,
					e.Type, name)
			}
			m, err := newMessage(e, v)
			if err != nil {
				return nil, fmt.Errorf("%s, version %d: %w", e.Type, v.Number, err)
			}
			doc.Components.Messages[name] = m
			c.Messages[name] = reference{"#/components/messages/" + name}
			if v.Number == e.Version {
				to := "#/channels/" + id
				doc.Operations["send."+safe(e.Type)] = operation{
					"send", reference{to}, e.Description, []reference{{to + "/messages/" + name}},
				}
			}
		}
	}
	return indented(doc)
}

func newMessage(e event, v version) (message, error) {
	text := func(value string) *jsonschema.Schema {
		var constant any = value
		return &jsonschema.Schema{Type: "string", Const: &constant}
	}
	headers := &jsonschema.Schema{
		Type: "object",
		Properties: map[string]*jsonschema.Schema{
			core.HeaderEventID:       {Type: "string", Description: "the identity by which a consumer deduplicates"},
			core.HeaderEventType:     text(e.Type),
			core.HeaderSchemaVersion: text(strconv.Itoa(v.Number)),
		},
		PropertyOrder: []string{core.HeaderEventID, core.HeaderEventType, core.HeaderSchemaVersion},
		Required:      []string{core.HeaderEventID, core.HeaderEventType, core.HeaderSchemaVersion},
	}
	payload, err := indented(v.schema)
	return message{
		Name: e.Type, Title: fmt.Sprintf("%s, version %d", e.Type, v.Number), Summary: e.Description,
		ContentType: "application/json", Tags: []tag{{e.Domain}}, Headers: headers, Payload: payload,
		Examples:  []example{{json.RawMessage(v.ExampleJSON)}},
		EventType: e.Type, EventVersion: v.Number, Current: v.Number == e.Version, Topic: e.Topic, Owner: e.Owner,
		AggregateType: e.AggregateType, Aggregate: e.Aggregate, Key: e.Key, Deprecated: e.Deprecated,
	}, err
}
