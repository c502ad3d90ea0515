package walrelay

import "errors"

// Errors that New, Setup, Run and Status wrap.
var (
	// ErrConfig: a field of Config is missing or wrong. The error names all of them.
	ErrConfig = errors.New("walrelay: wrong configuration")
	// ErrServer: PostgreSQL or its role cannot be used as they are: wal_level, a missing right, a
	// version that is too old, an address that is no PostgreSQL. The error says what to change.
	ErrServer = errors.New("walrelay: the server cannot be read")
	// ErrNotSetUp: the publication, the slot or the table of the slot is missing, and Config.Create
	// is not set. Call Setup.
	ErrNotSetUp = errors.New("walrelay: not set up")
	// ErrSlotTaken: the slot belongs to something else: another plugin, another database, a
	// physical slot, a publication of other rows.
	ErrSlotTaken = errors.New("walrelay: the slot or the publication is not ours")
	// ErrSlotLost: the server has removed log that was not read, or the slot is gone, and
	// Config.Repair does not allow a repair.
	ErrSlotLost = errors.New("walrelay: the slot is lost")
	// ErrSlotMoved: the slot is not where this relay left it: somebody else has read or made it, or
	// the database is a copy. Config.Repair says what to do.
	ErrSlotMoved = errors.New("walrelay: the slot was moved by somebody else")
)
