// Package monitoring holds tests of what docs/monitoring ships: promtool runs the alert rules, and
// the queries of the rules and of the dashboard find their series in the scrape of a running relay.
// Beside them are the tests of metrics and traces against real databases.
package monitoring
