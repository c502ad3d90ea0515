// Package entplain is a client that Ent generated for the tests, without any feature: a table of
// notes, and the outbox's table of events.
package entplain

//go:generate go run entgo.io/ent/cmd/ent@v0.14.5 generate ./schema
//go:generate rm -r enttest hook
