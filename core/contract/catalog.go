package contract

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Info is a declaration, for generators. Its texts come from Spec, with the defaults filled in.
type Info struct {
	Type                       string
	Version                    int // the current one
	Description, Owner, Domain string
	Notes, Deprecated          string
	Topic, AggregateType       string
	// Aggregate and Key are the names in JSON of the fields with these tags. Empty: none has.
	Aggregate, Key string
	// Versions ascend. The last is the current one.
	Versions []Version
}

// Version is a version of an event's data, for generators.
type Version struct {
	Number      int
	Type        reflect.Type
	Example     any
	ExampleJSON []byte // as the default codec of the outbox writes it
}

// Entry is an *EventType of any data.
type Entry interface {
	Info() Info
	entry()
}

func (e *EventType[T]) entry() {}

// Catalog is a set of event types: a service's, or a team's. Module contractoutbox writes documents
// and schemas of it.
type Catalog struct{ events []Info }

// NewCatalog returns the catalog of the given event types. The error names every problem: a type
// that is declared twice, or types whose names differ in upper and lower case only.
func NewCatalog(entries ...Entry) (*Catalog, error) {
	var problems []error
	c := &Catalog{}
	seen := map[string]Info{}
	for n, e := range entries {
		if e == nil || reflect.ValueOf(e).IsNil() {
			problems = append(problems, fmt.Errorf("entry %d is nil", n))
			continue
		}
		info := e.Info()
		other, ok := seen[strings.ToLower(info.Type)]
		switch {
		case ok && other.Type != info.Type:
			problems = append(problems, fmt.Errorf("event types %q and %q differ in upper and lower case only",
				other.Type, info.Type))
		case ok && other.Version != info.Version:
			older, newer := min(other.Version, info.Version), max(other.Version, info.Version)
			problems = append(problems, fmt.Errorf("event type %q is declared twice, as version %d and %d: "+
				"declare the older one by From in Spec.Older of the newer", info.Type, older, newer))
		case ok:
			problems = append(problems,
				fmt.Errorf("event type %q, version %d, is declared twice", info.Type, info.Version))
		}
		seen[strings.ToLower(info.Type)] = info
		c.events = append(c.events, info)
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("%w: catalog: %w", errDeclaration, errors.Join(problems...))
	}
	slices.SortFunc(c.events, func(a, b Info) int { return strings.Compare(a.Type, b.Type) })
	return c, nil
}

// Events returns the declarations, sorted by their types.
func (c *Catalog) Events() []Info { return slices.Clone(c.events) }
