// Package crash proves what the outbox promises when processes die: a parent process, which is the
// test, starts children that write business data with events and relay them, and ends them in the
// middle of their work. The parent owns the truth: it is the broker (Ledger), and it reads what was
// committed from tables that the children write in the same transactions as their events (Truth).
// Nothing of this is built into the released packages: a child wraps the repository, the publisher,
// the driver and the network connection, and ends itself between two calls.
package crash
