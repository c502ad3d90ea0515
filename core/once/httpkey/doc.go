// Package httpkey is net/http middleware for the Idempotency-Key header. A client that did not see
// the answer sends its request again. The middleware answers it with the first response, and the
// work is not done twice.
//
//	keys, err := httpkey.New(httpkey.Config{
//		Keys:       once.Config{Store: store},        // sqlonce.Store, or any other once.Store
//		Transactor: sqltx.NewTransactor(db, ""),  // or that of your ORM's adapter; leave it out for the lease form
//		Scope:      func(r *http.Request) string { return principal(r) },
//	})
//	mux.Handle("POST /payments", keys.Wrap(http.HandlerFunc(pay)))
//	go keys.Run(ctx) // deletes keys whose time to live is over
//
// With a Transactor, in the transaction form, the middleware opens a transaction, and the handler
// works in it. The handler gets the transaction from sqltx.FromContext(r.Context()), or from
// FromContext of its ORM's adapter. Key, effects and response commit together, and the client gets
// no answer before the commit. Prefer this form: the effects in that database happen once, even if
// a process crashes.
//
// Without a Transactor, in the lease form, a lease holds the key while the handler runs, and the
// response is recorded after it. After a crash in between, the next request with the key runs the
// handler again, once the lease is over. Give the key ([KeyOf]) to the other side too.
//
// Wrap handlers inside of the mux, so that r.Pattern is set, and inside of the authentication, so
// that Scope can use the principal. The answers follow the vocabulary of
// draft-ietf-httpapi-idempotency-key-header-07, which never became a standard;
// docs/http-idempotency.md lists them in a table.
package httpkey
