// Package ent is the client that Ent generated for the order service.
package ent

// With the feature sql/execquery, transactions and mutations lead the outbox to the transaction
// that they are in.
//go:generate go run entgo.io/ent/cmd/ent@v0.14.5 generate --feature sql/execquery ./schema
