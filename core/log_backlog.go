package core

// LogBacklog is the progress of the reader of the database's log, see Config.RelayedByLog. The
// relay of module pgxoutbox/walrelay returns it, and package metrics makes gauges of it.
type LogBacklog struct {
	// Slot is the database's name for the reader: its replication slot.
	Slot string
	// Known: the database has the slot, so that Behind and Kept have a meaning.
	Known bool
	// Behind is how many bytes of log the reader has not confirmed. Log of all tables of the server
	// counts, so Behind is above zero while other programs write.
	Behind int64
	// Kept is how many bytes of log the server keeps on its disk because of the slot: Behind, and
	// the log of transactions that are open.
	Kept int64
	// Safe is how many bytes may be written until the server may remove log that the reader needs.
	// It has a meaning if Bounded is set, and may be negative.
	Safe    int64
	Bounded bool
	// Active: a process reads the slot.
	Active bool
	// Lost: the server has removed log that was not read, or the slot is missing.
	Lost bool
	// Repairing: events of a slot that was lost are published from the table.
	Repairing bool
	// Leading: this process reads the slot. Other processes cannot count SpilledKeys: the keys
	// whose events are published from the table, because an event was refused.
	Leading     bool
	SpilledKeys int
}
