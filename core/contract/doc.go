// Package contract declares events once, in Go: their names, versions, owners, keys and examples.
// The producer makes events by the declaration, consumers read them by it in any version, and
// module contractoutbox writes documents and schemas of it and compares them with the last release.
//
//	// OrderPlacedV2 is the data of version 2.
//	type OrderPlacedV2 struct {
//		OrderID  string `json:"order_id" contract:"aggregate" doc:"the order's number"`
//		Customer string `json:"customer" contract:"pii"`
//		Cents    int64  `json:"cents" doc:"the total" minimum:"0"`
//	}
//
//	var OrderPlaced = contract.Must(contract.Define(contract.Spec[OrderPlacedV2]{
//		Type: "order.placed", Version: 2, Owner: "team orders", Topic: "orders",
//		AggregateType: "order", Description: "A customer has placed an order.",
//		Example:     OrderPlacedV2{OrderID: "o-7", Customer: "ada", Cents: 4200},
//		Older: []contract.Older{contract.From(1, OrderPlacedV1{OrderID: "o-7", Total: 42}, upcast)},
//	}))
//
//	var Catalog = contract.Must(contract.NewCatalog(OrderPlaced, OrderPaid))
//
// A producer publishes OrderPlaced.Event(data). A consumer calls OrderPlaced.Decode, or Handle of a
// Handlers with a function for each type of its topic.
//
// # Tags
//
// Tags of the fields describe the data. The first three work in this package, the others are for
// documents and schemas. Fields are named and left out as encoding/json does it.
//
//   - contract:"aggregate": the field is the AggregateID of the event. It is a string, an integer
//     or an encoding.TextMarshaler, at the top of the data, and never empty.
//   - contract:"key": the field is the Key of the event, where that is not the aggregate.
//   - contract:"pii": the field has personal data. Documents and schemas mark it.
//   - doc:"...": the meaning of the field.
//   - enum:"a,b", minimum, maximum, minLength, maxLength, pattern, format: the keywords of JSON
//     Schema.
//
// A field without omitempty or omitzero is required: Decode refuses data without it, and data in
// which it is null although its type has no nil. Unknown fields are ignored.
package contract
