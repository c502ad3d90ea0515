// Package enttables is a client that Ent generated for the tests, of the tables of the outbox.
package enttables

//go:generate go run entgo.io/ent/cmd/ent@v0.14.5 generate ./schema
