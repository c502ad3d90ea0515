// Package ent is the client that Ent generated for the benchmark.
package ent

import stdsql "database/sql"

//go:generate go run entgo.io/ent/cmd/ent@v0.14.5 generate --feature sql/execquery ./schema
//go:generate rm -r enttest hook

// Ent sometimes writes a tx.go without this import, which does not compile. It always finds the
// import in a file that it does not write: https://github.com/ent/ent/issues/4513.
var _ stdsql.Result
