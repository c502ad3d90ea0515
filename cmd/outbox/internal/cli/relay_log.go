package cli

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/pflag"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
)

// pollEvery is the pause between polls, if nothing else is asked for.
const pollEvery = time.Second

// leastOfLog is how many connections a reader of the log needs.
const leastOfLog = 4

// repairPolicies are the values of --repair-slot.
var repairPolicies = map[string]walrelay.RepairPolicy{
	"lost": walrelay.RepairLost, "never": walrelay.RepairNever, "always": walrelay.RepairAlways,
}

// logFlags are the settings of a relay that reads the log of PostgreSQL.
type logFlags struct {
	slot             string // empty: it polls the table
	create, failover bool
	repair           string
}

func (f *logFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.slot, "slot", "", "read the log of PostgreSQL by this slot, and do not poll")
	flags.BoolVar(&f.create, "create-slot", false, "make the slot, its publication and its table")
	flags.BoolVar(&f.failover, "failover-slot", false, "new slots follow to standbys (PostgreSQL 17)")
	flags.StringVar(&f.repair, "repair-slot", "lost", "repair a lost slot (lost), also a moved slot (always), "+
		"or no slot (never)")
}

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// checkLog refuses flags that contradict --slot, and flags that have no meaning without it.
func (f *relayFlags) checkLog(refuse func(is bool, format string, args ...any)) {
	_, known := repairPolicies[f.repair]
	refuse(!known, "--repair-slot %.64q: it is lost, always or never", f.repair)
	if f.slot == "" {
		refuse(f.create || f.failover || known && f.repair != "lost", "--create-slot, --failover-slot and "+
			"--repair-slot are for a relay that reads the log: --slot is missing")
		return
	}
	const not = "%s does not go with --slot: %s"
	refuse(!slotName.MatchString(f.slot), "--slot %.80q: it has lower-case letters, digits and _, at most 63", f.slot)
	refuse(f.pollInterval > 0 && f.pollInterval != pollEvery, not, "--poll-interval",
		"the log tells the relay of each event")
	refuse(f.noWake, not, "--no-wake", "the log wakes the relay, and nothing is listened for")
	refuse(f.deleteOnSuccess, not, "--delete-on-success", "events of the log stay in the table for --keep, and a slot "+
		"that is lost is repaired from them")
	refuse(f.connections >= 2 && f.connections < leastOfLog, "--connections %d: with --slot it is %d or more",
		f.connections, leastOfLog)
}

// openLog makes the relay that reads the log. cfg is the configuration of its outbox, without the
// table.
func (o *relayed) openLog(ctx context.Context, cfg core.Config) (err error) {
	if o.db.dialect != core.Postgres {
		return usage("--slot %s: only the log of PostgreSQL is read, and this is %s: leave --slot out", o.slot,
			o.db.name)
	}
	pool, err := pgxpool.ParseConfig(o.db.pgx.ConnString())
	if err != nil {
		return usage("the database's URL: %w", err)
	}
	pool.ConnConfig, pool.MaxConns = o.db.pgx.Copy(), int32(o.connections) //nolint:gosec // check bounds it
	pool.MaxConnIdleTime = connectionIdle
	if o.pool, err = pgxpool.NewWithConfig(ctx, pool); err != nil {
		return err
	}
	o.log, err = walrelay.New(walrelay.Config{
		Pool: o.pool, Tables: sqloutbox.Config{Schema: o.schema, Prefix: o.prefix}, Slot: o.slot, Create: o.create,
		Failover: o.failover, Repair: repairPolicies[o.repair], Outbox: cfg,
	})
	if err != nil {
		return usage("%w", relayError{err})
	}
	o.outbox = o.log.Outbox()
	return nil
}

// advice replaces the advice for programs in errors of walrelay by the flags of the command.
var advice = strings.NewReplacer(
	"drop it and call Setup, or name another one", "drop it, and start the relay once with --create-slot",
	"call Setup, or set Create", "start the relay once with --create-slot",
	"set Config.Replication to PostgreSQL itself", "give --database-url that of PostgreSQL itself",
	"Config.Repair = RepairAlways makes it again, and publishes",
	"The relay, started once with --repair-slot always, makes it again, and publishes",
	"so give Config.Slot another one", "so give --slot another one",
	"Config.Failover", "--failover-slot",
	"walrelay: ", "",
)

// relayError is an error of a relay for the command line.
type relayError struct{ error }

func (e relayError) Error() string { return withoutPackages(advice.Replace(e.error.Error())) }
func (e relayError) Unwrap() error { return e.error }
