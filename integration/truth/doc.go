// Package truth runs random programs of an ORM with the outbox. Triggers write down which rows a
// program changes, in its transactions, and the events are compared with that: each changed row has
// one event with the row as it is stored, and no event is there without its row. The same programs
// run on a second database without the outbox, and callers must not see a difference.
package truth
