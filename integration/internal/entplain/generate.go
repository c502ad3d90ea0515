// Package entplain is a client that Ent generated for the tests, without the feature sql/execquery.
package entplain

//go:generate go run entgo.io/ent/cmd/ent@v0.14.5 generate ./schema
