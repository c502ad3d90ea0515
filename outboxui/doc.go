// Package outboxui is the operators' page: an http.Handler that shows the events of an outbox,
// explains their states, and redrives, discards, pauses and repairs. It has the functions of
// package core/ops and of the command line, in the same words, and shows the command.
//
// New makes the handler of one or several outboxes. A service mounts it under any prefix; links
// are relative:
//
//	page, err := outboxui.New(outboxui.Config{
//		Outboxes:    []outboxui.Outbox{{Name: "shop", API: api, Database: "db1.internal, shop"}},
//		Environment: outboxui.Environment{Name: "production", Colour: "violet"},
//		Authorize:   authorize,
//	})
//	...
//	mux.Handle("/admin/outbox/", http.StripPrefix("/admin/outbox", page))
//
// Without Config.Authorize every request is refused. The page needs no script: with one, progress
// is live. It loads nothing from elsewhere. `outbox ui` of cmd/outbox serves it on a loopback
// address.
package outboxui
