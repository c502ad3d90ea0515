package walrelay

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// Config configures a Relay. Pool and Outbox.Publisher are required. The zero value of every other
// field means the documented default.
type Config struct {
	// Pool is where the tables are: PostgreSQL 15 or newer. It needs four connections at least.
	Pool *pgxpool.Pool
	// Replication is where the log is read. Its role has the attribute REPLICATION, and needs no
	// right to the tables. It must be PostgreSQL itself, and no PgBouncer. It comes from
	// pgx.ParseConfig. Default: the Pool's.
	Replication *pgx.ConnConfig
	// Tables names the tables.
	Tables sqloutbox.Config

	// Slot is the replication slot. Relays with the same slot stand by for each other: only one
	// reads it. Lower-case letters, digits and underscores, at most 63. Default: outbox.
	Slot string
	// Publication names the rows that are read: the inserts of the table of events with claimed_by
	// = 'log'. At most 63 bytes. Default: the name of the slot.
	Publication string
	// Create makes Run create the publication, the slot and the table outbox_log if they are
	// missing. A new slot then begins with all events of readers of the log that are in the table.
	// The role must own the table of events. Default: Run returns ErrNotSetUp.
	Create bool
	// Failover makes new slots ones that follow to the standbys of PostgreSQL 17 or newer.
	Failover bool
	// Repair decides how Run treats a slot that is lost or was moved. Default: RepairLost.
	Repair RepairPolicy

	// Outbox configures publishing: Publisher, Relay, Observer and all others, except for
	// Repository, RelayedByLog and Wake, which are set here. ColdEvents and ColdBytes of Relay
	// bound the events that are being published. Default of Relay: relay.Config{}.
	Outbox core.Config

	// Window and WindowBytes bound the events between the first unanswered one and the last one
	// read. Nothing is read beyond them. WindowBytes may be exceeded by one event. Default: 16384
	// events, 64 MiB.
	Window      int
	WindowBytes int64
	// StallLimit is how long the window may be full before the events whose destination is stopped,
	// paused or limited are put into the table. They wait there, so that the others go on and the
	// server need not keep the log. Negative: they are never put there. Default: 30 s.
	StallLimit time.Duration
	// ConfirmEvery and ConfirmEvents set how often the progress is confirmed to the server: after
	// this time, and after this many events. A crash repeats the events since the last
	// confirmation. Default: 1 s, 1000 events.
	ConfirmEvery  time.Duration
	ConfirmEvents int
	// CheckpointEvery is how often the relay records the point from which a repair has to publish
	// again. It also is the time between two confirmations of a quiet outbox. Default: 10 s.
	CheckpointEvery time.Duration
}

// RepairPolicy decides how Run treats a slot that is not where the relay left it.
//
// A repair makes the slot again and publishes, from the table, every event that committed since the
// last checkpoint of the relay, some ten seconds before the slot was lost. Nothing is lost as long
// as the rows are still in the table, see Keep of relay.Retention. Some events are published again.
type RepairPolicy uint8

const (
	// RepairLost repairs a slot that the server has invalidated or that was dropped. Then there is
	// only one right thing to do. A slot that somebody else has moved is left alone, because two
	// programs may be reading it, or this database may be a copy of another one: Run returns
	// ErrSlotMoved.
	RepairLost RepairPolicy = iota
	// RepairNever leaves every slot alone: Run returns ErrSlotLost or ErrSlotMoved.
	RepairNever
	// RepairAlways repairs a slot that was moved, too. Set it for one run, when the reason is
	// known.
	RepairAlways
)

func (c *Config) setDefaults() {
	c.Slot = cmp.Or(c.Slot, "outbox")
	c.Publication = cmp.Or(c.Publication, c.Slot)
	c.Tables.Prefix = cmp.Or(c.Tables.Prefix, sqloutbox.DefaultPrefix)
	c.Window = cmp.Or(c.Window, 16384)
	c.WindowBytes = cmp.Or(c.WindowBytes, 64<<20)
	c.StallLimit = cmp.Or(c.StallLimit, 30*time.Second)
	c.ConfirmEvery = cmp.Or(c.ConfirmEvery, time.Second)
	c.ConfirmEvents = cmp.Or(c.ConfirmEvents, 1000)
	c.CheckpointEvery = cmp.Or(c.CheckpointEvery, 10*time.Second)
	c.Outbox.Logger = cmp.Or(c.Outbox.Logger, core.DefaultLogger())
	if c.Outbox.Relay == nil {
		c.Outbox.Relay = relay.Config{}
	}
}

// leastConns are the connections for a repair: the lock, the rows, and two for statements.
const leastConns = 4

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// validate reports every problem of a configuration that has its defaults.
func (c *Config) validate() error {
	var problems []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	bad(c.Pool == nil, "Pool is nil")
	if c.Pool != nil {
		n := c.Pool.Config().MaxConns
		bad(n < leastConns, "Pool has at most %d connections, and needs %d", n, leastConns)
	}
	bad(!slotName.MatchString(c.Slot), "Slot is %q: use lower-case letters, digits and underscores, at most 63", c.Slot)
	bad(len(c.Publication) > 63, "Publication has %d bytes, more than 63", len(c.Publication))
	bad(c.Repair > RepairAlways, "Repair is %d, which is no RepairPolicy", c.Repair)
	bad(c.Window < 1 || c.WindowBytes < 1,
		"Window and WindowBytes are %d and %d, not positive", c.Window, c.WindowBytes)
	bad(c.ConfirmEvery < 0 || c.ConfirmEvents < 0 || c.CheckpointEvery < 0,
		"ConfirmEvery, ConfirmEvents and CheckpointEvery are %s, %d and %s, and one is negative", c.ConfirmEvery,
		c.ConfirmEvents, c.CheckpointEvery)
	o := &c.Outbox
	bad(o.Repository != nil, "Outbox.Repository is set: leave it out, it is made of Pool and Tables")
	bad(o.RelayedByLog, "Outbox.RelayedByLog is set: it is for the processes that insert the events")
	bad(o.Publisher == nil, "Outbox.Publisher is nil")
	bad(o.Wake.Listen != nil || o.Wake.Notify != nil || o.Wake.Disable,
		"Outbox.Wake is set: leave it out, the log wakes the relay")
	if len(problems) > 0 {
		return fmt.Errorf("%w: %w", errConfig, errors.Join(problems...))
	}
	return nil
}

// Errors that New, Setup, Run and Status wrap.
var (
	// errConfig: a field of Config is missing or wrong. The error names all of them.
	errConfig = errors.New("walrelay: wrong configuration")
	// errServer: PostgreSQL or its role cannot be used as they are: wal_level, a missing right, a
	// version that is too old, an address that is no PostgreSQL. The error has the remedy.
	errServer = errors.New("walrelay: the server cannot be read")
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
	// the database is a copy. See Config.Repair.
	ErrSlotMoved = errors.New("walrelay: the slot was moved by somebody else")
)
