// Package ent is the client that Ent generated for the order service.
package ent

// With the feature sql/execquery, the outbox finds the transaction of a *Tx or a mutation.
//go:generate go run entgo.io/ent/cmd/ent@v0.14.5 generate --feature sql/execquery ./schema
