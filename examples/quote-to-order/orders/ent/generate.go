// Package ent is the client that Ent generated for the order service.
package ent

import stdsql "database/sql"

// With the feature sql/execquery, the outbox finds the transaction of a *Tx or a mutation.
//go:generate go run entgo.io/ent/cmd/ent@v0.14.5 generate --feature sql/execquery ./schema

// Ent sometimes writes a tx.go without this import, which does not compile. It always finds the
// import in a file that it does not write: https://github.com/ent/ent/issues/4513.
var _ stdsql.Result
