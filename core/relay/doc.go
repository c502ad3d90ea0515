// Package relay publishes the events that package core has written. A service gives its settings, a
// [Config], to core.Config.Relay or to the field Relay of its adapter's Config, and calls Run of
// the outbox.
//
// A relay takes events on two paths: the fast path, straight from a commit of this process, and the
// poller, which claims rows of the table. Its goroutines share one value, state, and reach it only
// through its guard. The table is the only source of truth: whatever a relay holds in memory may be
// lost.
package relay
