// Package contractoutbox writes the documents of a catalog of events, and finds changes that would
// break its consumers. The catalog is a contract.Catalog, which needs the standard library only, so
// a service does not carry this package: it belongs into a test.
//
//	func TestContracts(t *testing.T) {
//		g, err := contractoutbox.New(events.Catalog, contractoutbox.Config{Title: "Shop"})
//		if err != nil {
//			t.Fatal(err)
//		}
//		if *update { // go test ./events -run Contracts -update
//			err = g.Write("../docs/events")
//		}
//		if err := errors.Join(err, g.Verify("../docs/events")); err != nil {
//			t.Error(err)
//		}
//		baseline, err := contractoutbox.GitBaseline(t.Context(), "../docs/events", "") // the last tag
//		if err != nil {
//			t.Fatal(err)
//		}
//		if err := g.Compatible(baseline); err != nil {
//			t.Error(err)
//		}
//	}
//
// Write makes these files, and a file changes only if the contract does:
//
//   - README.md: the list of events
//   - <domain>/<event>.md: a page for each event
//   - <domain>/<event>.v<version>.schema.json: a JSON Schema (2020-12) for each version
//   - asyncapi.json: the whole catalog as one AsyncAPI 3.0 document, with which the next release is
//     compared
//
// # Schemas
//
// A schema describes what encoding/json writes. Fields without omitempty or omitzero are required.
// A pointer, a slice, a map or an interface that is not left out may be null. A time.Time is a
// string of format date-time, a []byte is base64, an encoding.TextMarshaler is a string. A type
// with a MarshalJSON of its own needs a schema in Config.Schemas, and so does a type that contains
// itself. Further properties are always allowed, because consumers must ignore unknown fields.
package contractoutbox
