// Package entplain is a client that Ent generated for the tests, without any feature: a table of
// notes, and two tables of the outbox.
package entplain

//go:generate go run entgo.io/ent/cmd/ent@v0.14.5 generate ./schema
