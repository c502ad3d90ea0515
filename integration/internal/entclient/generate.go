// Package entclient is a client that Ent generated for the tests, with the features sql/execquery,
// sql/upsert and privacy.
package entclient

//go:generate go run entgo.io/ent/cmd/ent@v0.14.5 generate --feature sql/execquery,sql/upsert,privacy ./schema
