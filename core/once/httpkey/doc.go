// Package httpkey is net/http middleware for the Idempotency-Key header: a request that a client
// sends again, because it did not see the answer, is answered with the response of the first time
// instead of being carried out twice.
//
//	keys, err := httpkey.New(httpkey.Config{
//		Keys:       once.Config{Store: store},        // sqlonce.Store, or any other once.Store
//		Transactor: sqltx.NewTransactor(db, ""),  // or that of your ORM's adapter; leave it out for the lease form
//		Scope:      func(r *http.Request) string { return principal(r) },
//	})
//	mux.Handle("POST /payments", keys.Wrap(http.HandlerFunc(pay)))
//	go keys.Run(ctx) // deletes keys whose time to live is over
//
// With a Transactor, the transaction form, the middleware opens a transaction, and the handler
// works in it: sqltx.FromContext(r.Context()), or FromContext of its ORM's adapter. Key, effects
// and response commit together, and the client hears nothing before. This is the form to prefer:
// the effects in that database happen once, whoever crashes when.
//
// Without one, the lease form, the key is held by a lease while the handler runs, and its response
// is recorded after it. A crash in between makes the next request with the key run the handler
// again, after the lease. Give the key (KeyOf) to the other side too.
//
// Wrap handlers inside of the mux, so that r.Pattern is known, and inside of the authentication, so
// that Scope knows who asks. The answers follow the vocabulary of
// draft-ietf-httpapi-idempotency-key-header-07, which never became a standard;
// docs/http-idempotency.md has them in a table.
package httpkey
