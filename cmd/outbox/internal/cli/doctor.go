package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core"
)

// Levels of a finding.
const (
	levelOK      = "ok"
	levelWarning = "warning"
	levelFailure = "failure"
)

// finding is the result of one check.
type finding struct {
	Check string `json:"check"`
	Level string `json:"level"`
	Found string `json:"found"`
	Cause string `json:"cause,omitempty"`
	Fix   string `json:"fix,omitempty"`
}

// findings are what doctor prints.
type findings struct {
	Findings []finding `json:"findings"`
}

func fine(check, found string) finding { return finding{Check: check, Level: levelOK, Found: found} }

// limits are those of doctor's flags.
type limits struct {
	transaction time.Duration
	skew        time.Duration
	deadTuples  int64
	maxBehind   int64         // bytes of log that a reader may be behind
	dedupWindow time.Duration // of the consumers; 0: not known
	overdue     time.Duration // of effects
	lease       time.Duration // of work under idempotency keys; 0: that of keys that are held
	to          string        // the broker; empty: not known
	rabbitAPI   string        // address of the management API of RabbitMQ; empty: not known
	keysPrefix  string        // of the tables of idempotency keys
	redis       string        // where redisonce keeps keys; empty: not known
}

// examination is one run of doctor.
type examination struct {
	db             *database
	ob             *core.Outbox
	schema, prefix string
	effectsPrefix  string
	limits
	now      func() time.Time
	noTables bool // tables or columns are missing
	differ   bool // the tables are not those of this version, and most checks can read them
}

func (a *app) doctorCommand() *cobra.Command {
	var l limits
	var strict bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what makes an outbox lose, delay or pile up events",
		Long: `doctor looks at the database and says what is wrong, why that matters, and what to do:

  tables        missing or different tables, columns and indexes; indexes that are not valid
  durability    settings under which the database loses commits when it crashes
  isolation     a default isolation under which transactions of producers fail
  silence       what the database does and tells nobody: policies hide rows from this role (PostgreSQL), or
                a Galera node ends transactions of a driver that prepares statements
  clock         the clock of the database and that of this machine differ
  transactions  transactions that are open for long: they hold keys, and keep old rows alive
  vacuum        autovacuum is off, or leaves many dead tuples (PostgreSQL)
  relays        topics with waiting events that no living relay publishes
  destinations  what the relays say of their destinations
  pauses        what is paused, by whom and why
  dead          dead events
  pooler        a pooler that shares sessions is between (PostgreSQL)
  versions      migrations that are missing, or newer than this program; tables of other prefixes
  names         two programs that serve one handler of a consumer, keep keys of one endpoint or type of
                commands in one table, or read one slot of walrelay; with --redis also those that use
                one prefix of redisonce there
  effects       dead effects, and due ones whose event is gone
  leases        events and effects that were taken over because a lease ended; work under idempotency
                keys that takes longer than its lease
  retention     events that are kept for longer than consumers have declared to remember them (outbox
                window), or than --dedup-window
  broker        with --to kafka://...: topics that lose events that they have accepted; with
                --to amqp://...: exchanges and queues that are missing, or that RabbitMQ does not let
                the relay declare, because they are different, and with --rabbitmq-api those that
                lose events that they have accepted
  log           where walrelay or Debezium reads the events from the log of the database: on
                PostgreSQL whether a publication and a slot are there, whether the publication of
                walrelay has all events, how far its reader is, and whether events wait for long

The table of keys has the lease of keys that are held now, and how long work took that succeeded at
once; --lease gives the lease that you have set. How long effects, publishes and handlers of the inbox
take is in no table: their metrics tell it. A worker whose handlers may run for longer than Lease says
so in its log.

It changes nothing. Exit code 3 says that a check failed; with --strict a warning counts too.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			l.to = cmp.Or(l.to, a.Getenv("OUTBOX_TO"))
			if l.to != "" {
				if _, _, err := openerOf(l.to); err != nil {
					return err
				}
			}
			ctx, cancel := a.limited(c)
			defer cancel()
			db, err := a.open(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = db.Close() }()
			ob, err := a.outbox(db, core.BlockKey)
			if err != nil {
				return err
			}
			a.noteDatabase(db)
			x := &examination{db: db, ob: ob, schema: a.schema, prefix: a.prefixOf(), limits: l, now: a.now}
			x.effectsPrefix = a.effectsPrefix
			x.rabbitAPI = cmp.Or(x.rabbitAPI, a.Getenv("OUTBOX_RABBITMQ_API"))
			x.redis = cmp.Or(x.redis, a.Getenv("OUTBOX_REDIS"))
			all := x.examine(ctx)
			if err := a.print(findings{all}, func() { a.printFindings(all) }); err != nil {
				return err
			}
			if n := count(all, levelFailure); n > 0 {
				return exit(ExitUnhealthy, "%s failed", many(n, "check"))
			}
			if n := count(all, levelWarning); strict && n > 0 {
				return exit(ExitUnhealthy, "%s", many(n, "warning"))
			}
			return nil
		},
	}
	f := c.Flags()
	f.BoolVar(&strict, "strict", false, "exit code 3 for a warning too")
	f.DurationVar(&l.transaction, "max-transaction", 5*time.Minute, "how long a transaction may be open")
	f.DurationVar(&l.skew, "max-skew", 2*time.Second, "how far the clocks may be apart")
	f.Var((*span)(&l.dedupWindow), "dedup-window", "how long consumers remember events; 0: what they have declared")
	f.DurationVar(&l.overdue, "max-overdue", overdueAfter, "how long an effect may be due")
	f.DurationVar(&l.lease, "lease", 0, "the lease of idempotency keys; 0: that of keys that are held now")
	f.StringVar(&l.to, "to", "", "the broker of the relay (default: $OUTBOX_TO)")
	f.StringVar(&l.rabbitAPI, "rabbitmq-api", "",
		"RabbitMQ's management API, as http://user:password@host:15672 (default: $OUTBOX_RABBITMQ_API)")
	f.StringVar(&l.redis, "redis", "", "where redisonce keeps keys, as redis://user:password@host:6379/0 "+
		"(default: $OUTBOX_REDIS)")
	f.StringVar(&l.keysPrefix, "keys-prefix", "", "prefix of the tables of idempotency keys")
	f.StringVar(&a.effectsPrefix, "effects-prefix", "", "prefix of the tables of effects")
	f.Int64Var(&l.maxBehind, "max-log-behind", maxLogBehind,
		"bytes of log that the reader of a slot may be behind (PostgreSQL)")
	f.Int64Var(&l.deadTuples, "max-dead-tuples", 100_000, "dead tuples of the table of events (PostgreSQL)")
	return c
}

func count(all []finding, level string) (n int) {
	for _, f := range all {
		if f.Level == level {
			n++
		}
	}
	return n
}

func (a *app) printFindings(all []finding) {
	colors := map[string]string{levelOK: green, levelWarning: yellow, levelFailure: red}
	for _, f := range all {
		a.sayf("%s  %s: %s\n", a.paint(colors[f.Level], fmt.Sprintf("%-7s", f.Level)), f.Check, f.Found)
		if f.Cause != "" {
			a.sayf("         why: %s\n", f.Cause)
		}
		if f.Fix != "" {
			a.sayf("         fix: %s\n", f.Fix)
		}
	}
}

// examine runs every check. A check that cannot be run is a warning, but not if the reason is in
// the tables: the first check has said so.
func (x *examination) examine(ctx context.Context) (all []finding) {
	for _, c := range []struct {
		name  string
		run   func(context.Context) ([]finding, error)
		reads bool // the tables
	}{
		{"tables", x.tables, false},
		{"durability", x.durability, false},
		{"isolation", x.isolation, false},
		{"silence", x.silence, true},
		{"clock", x.clock, false},
		{"transactions", x.transactions, false},
		{"vacuum", x.vacuum, true},
		{"relays", x.relays, true},
		{"destinations", x.destinations, true},
		{"pauses", x.pauses, true},
		{"dead", x.dead, true},
		{"pooler", x.pooler, false},
		{"versions", x.versions, false},
		{"names", x.names, true},
		{"effects", x.effects, true},
		{"leases", x.leases, true},
		{"retention", x.retention, true},
		{"broker", x.broker, true},
		{"log", x.log, true},
	} {
		found, err := c.run(ctx)
		said := c.reads && (x.noTables || x.differ && lacksTables(err))
		if err != nil && !said {
			fix := "if a right is missing, grant it; if the database was busy, call doctor again"
			if c.name == "broker" {
				fix = "see whether the addresses are right and something answers there, as it does for the relay"
			}
			found = append(found, finding{
				Check: c.name, Level: levelWarning, Found: "could not be checked: " + firstLine(err.Error()),
				Cause: "what this check would find is not known", Fix: fix,
			})
		}
		all = append(all, found...)
	}
	return all
}

func firstLine(s string) string {
	first, _, _ := strings.Cut(s, "\n")
	return first
}

func (x *examination) tables(ctx context.Context) ([]finding, error) {
	checker, ok := x.ob.Repository().(core.Checker)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	err := checker.Check(ctx)
	if err == nil {
		return []finding{fine("tables", "they are those of this version")}, nil
	}
	x.differ = errors.Is(err, core.ErrTablesDiffer)
	x.noTables = lacksTables(err) && !x.differ
	if x.noTables {
		var none *noTablesError
		err = x.db.withTables(ctx, kinds[0], x.schema, x.prefix, err)
		if errors.As(err, &none) && none.table != "" {
			return []finding{none.finding()}, nil
		}
		err = errors.Unwrap(err)
	}
	_, list, _ := strings.Cut(err.Error(), "\n") // a difference on each line
	if list == "" {
		list = err.Error()
	}
	return []finding{{
		Check: "tables", Level: levelFailure, Found: strings.ReplaceAll(list, "\n", "; "),
		Cause: "without a column or a table the relay does not start; without an index each claim reads the whole " +
			"table",
		Fix: "run `outbox migrate up" + x.flags() + "`, or apply the files of `outbox migrate get`; create an index " +
			"that is missing or not valid again",
	}}, nil
}

// flags are those that name the tables of the outbox.
func (x *examination) flags() string { return flagsOf(x.schema, trimDefault(x.prefix, kinds[0])) }

// finding is that of a database without an outbox. It is a failure, unless other tables of
// ormoutbox are there and none of an outbox: then it may be right.
func (e *noTablesError) finding() finding {
	f := finding{
		Check: "tables", Level: levelFailure, Found: "there is no table " + e.table,
		Cause: "a service cannot publish from this database, and doctor looks at no event",
		Fix:   "see whether this is the right database; `outbox migrate up" + e.where + "` creates the tables",
	}
	outbox := func(p present) bool { return p.kind.name == e.kind.name }
	switch {
	case slices.ContainsFunc(e.present, outbox):
		f.Fix = "give doctor the flags of the outbox that is there; `outbox migrate up" + e.where + "` makes another"
	case len(e.present) > 0:
		f.Level = levelWarning
		f.Fix = "if services publish from this database, `outbox migrate up" + e.where + "` creates the tables; " +
			"otherwise nothing is wrong"
	}
	if len(e.present) > 0 {
		f.Found += "; the database has " + e.others()
	}
	return f
}

func (x *examination) relays(ctx context.Context) ([]finding, error) {
	topics, err := x.ob.UnrelayedTopics(ctx)
	if err != nil {
		return nil, err
	}
	if len(topics) > 0 {
		return []finding{{
			Check: "relays", Level: levelFailure, Found: "nobody relays " + short(strings.Join(topics, ", ")),
			Cause: "events wait there, and no relay that is alive takes the topic",
			Fix: "start a relay (Run of the outbox, or `outbox relay`) whose publisher takes the topic; `outbox " +
				"status` lists the relays",
		}}, nil
	}
	return []finding{fine("relays", "every topic with waiting events has one")}, nil
}

func (x *examination) pauses(ctx context.Context) ([]finding, error) {
	list, err := x.ob.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	var all []finding
	for _, p := range list {
		row := pauseRowOf(p)
		all = append(all, finding{
			Check: "pauses", Level: levelWarning,
			Found: row.text(),
			Cause: "its events wait, and no relay publishes them",
			Fix:   fmt.Sprintf("when the reason is gone: `outbox resume %s --reason WHY`", row.argument()),
		})
	}
	if len(all) == 0 {
		all = append(all, fine("pauses", "nothing is paused"))
	}
	return all, nil
}

func (x *examination) dead(ctx context.Context) ([]finding, error) {
	b, err := x.ob.Backlog(ctx)
	if err != nil {
		return nil, err
	}
	if b.Dead > 0 {
		return []finding{{
			Check: "dead", Level: levelWarning,
			Found: fmt.Sprintf("given up: %s; blocked by them: %s", many(int(b.Dead), "event"),
				many(int(b.BlockedKeys), "key")),
			Cause: "their destination refused them, and the relay has given them up",
			Fix:   "see `outbox dead`, mend the cause, then `outbox redrive` or `outbox discard`",
		}}, nil
	}
	return []finding{fine("dead", "no event is dead")}, nil
}
