// Package cause carries what a handler handles in its context, for the events that it publishes.
package cause

import (
	"cmp"
	"context"
	"unicode/utf8"
)

// Limit is the most bytes that an id or a chain has.
const Limit = 255

// Cause is what a handler handles. The zero value belongs to a context outside of any handler.
type Cause struct {
	ID    string // of the message, the effect or the command; empty: of several messages
	Chain string // the id of what it all began with; empty: several messages share none
}

type key struct{}

// With returns a context for a handler of c.
func With(ctx context.Context, c Cause) context.Context { return context.WithValue(ctx, key{}, c) }

// Of returns what the handler of ctx handles.
func Of(ctx context.Context) Cause {
	c, _ := ctx.Value(key{}).(Cause)
	return c
}

// Next returns the cause of further work under id within c.
func (c Cause) Next(id string) Cause { return New(id, c.Chain) }

// New returns the cause id in a chain, which it begins if it has none. A chain that cannot be the
// value of a header counts as none: other producers write it.
func New(id, chain string) Cause {
	if !Fits(chain) {
		chain = ""
	}
	return Cause{ID: id, Chain: cmp.Or(chain, id)}
}

// Fits reports whether the metadata of an event can carry s.
func Fits(s string) bool {
	if s == "" || len(s) > Limit || !utf8.ValidString(s) {
		return false
	}
	for i := range len(s) {
		if s[i] < 0x20 || s[i] == 0x7f {
			return false
		}
	}
	return true
}
