// Package crash proves the outbox's promises about processes that die. The test is the parent
// process. It starts children that write business data with events and relay them, and ends them in
// the middle of their work. The parent is the broker (Ledger). It reads the committed events from
// tables that the children write in the transactions of their events (Truth). None of this is built
// into the released packages: a child wraps the repository, the publisher, the driver and the
// network connection, and ends itself between two calls.
package crash
