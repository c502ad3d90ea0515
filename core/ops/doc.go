// Package ops is for people who operate an outbox, and for the programs that they use: it lists
// events, shows one, explains why an event is where it is, groups failures, and redrives or
// discards events by filter.
//
// New makes an API of a core.Outbox. The Outbox needs no Publisher: a command line opens one on the
// tables alone.
//
// Every read is bounded. It uses an index, looks at no more than MaxLook rows for each index that
// it reads, and reports if rows were left out (Page.Truncated, Count.More). All times come from the
// clock of the database.
package ops
