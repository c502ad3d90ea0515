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
	"github.com/spf13/pflag"

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

func fine(check, found string) finding { return finding{Check: check, Level: levelOK, Found: found} }

// report has what a check finds.
type report struct {
	check string
	all   []finding
}

func (r *report) fine(found string) { r.all = append(r.all, fine(r.check, found)) }

func (r *report) warn(found, cause, fix string) {
	r.all = append(r.all, finding{r.check, levelWarning, found, cause, fix})
}

func (r *report) fail(found, cause, fix string) {
	r.all = append(r.all, finding{r.check, levelFailure, found, cause, fix})
}

// otherwise is fine if the check has found nothing.
func (r *report) otherwise(found string) {
	if len(r.all) == 0 {
		r.fine(found)
	}
}

// limits are the limits in doctor's flags.
type limits struct {
	transaction  time.Duration
	horizonLimit int64 // transactions that a standby or a slot may be behind
	skew         time.Duration
	deadTuples   int64
	maxBehind    int64         // bytes of log that a reader may be behind
	dedupWindow  time.Duration // of the consumers; 0: not known
	overdue      time.Duration // of effects
	lease        time.Duration // of work under idempotency keys; 0: the lease of held keys
	to           string        // the broker; empty: not known
	rabbitAPI    string        // address of the management API of RabbitMQ; empty: not known
	redis        string        // where redisonce keeps keys; empty: not known
}

// examination is one run of doctor.
type examination struct {
	report // of the check that runs
	*session
	schema, prefix string
	effectsPrefix  string
	keysPrefix     string
	limits
	now      func() time.Time
	noTables bool // tables or columns are missing
	differ   bool // the tables differ from this version's, and most checks can read them
}

func (a *app) doctorCommand() *cobra.Command {
	var l limits
	var strict bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what makes an outbox lose, delay or pile up events",
		Long: `doctor looks at the database and says what is wrong, why that matters, and what to do:

  tables        missing, different or invalid tables, columns and indexes
  durability    settings that lose commits in a crash
  isolation     a default isolation under which producers fail
  silence       policies that hide rows (PostgreSQL); statements prepared on Galera or a shard of Vitess
  clock         database and machine have different clocks
  transactions  long transactions; standbys and slots that keep old rows
  vacuum        autovacuum is off or too slow (PostgreSQL)
  relays        waiting topics that no living relay publishes
  destinations  destinations that a relay has stopped
  pauses        what is paused, by whom and why
  dead          dead events
  consumers     messages that consumers have given up
  pooler        a pooler that shares sessions (PostgreSQL)
  versions      missing migrations, or newer ones than this program
  names         two programs under one consumer, key, command, slot or (--redis) prefix
  effects       dead effects, and due effects whose event is gone
  keys          idempotency keys whose process disappeared
  leases        work that takes longer than its lease
  retention     events kept longer than consumers remember (outbox window)
  broker        --to: Kafka topics that lose accepted events; missing or different RabbitMQ queues, and
                with --rabbitmq-api queues that lose events
  log           publication, slot and reader of walrelay or Debezium (PostgreSQL)

A check that lacks a right says "not visible", and names the GRANT: docs/rights.md. Exit code 3: a
check failed. doctor changes nothing.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			l.to = cmp.Or(l.to, a.Getenv("OUTBOX_TO"))
			if l.to != "" {
				if _, _, err := openerOf(l.to); err != nil {
					return err
				}
			}
			return a.withOutbox(c, func(ctx context.Context, s *session) error {
				a.noteDatabase(s.db)
				all := a.examination(s, l).examine(ctx)
				if err := a.print(listing{"findings": all}, func() { a.printFindings(all) }); err != nil {
					return err
				}
				if n := count(all, levelFailure); n > 0 {
					return exit(ExitUnhealthy, "%s failed", many(n, "check"))
				}
				if n := count(all, levelWarning); strict && n > 0 {
					return exit(ExitUnhealthy, "%s", many(n, "warning"))
				}
				return nil
			})
		},
	}
	c.Flags().BoolVar(&strict, "strict", false, "exit code 3 for a warning too")
	a.limitFlags(c.Flags(), &l)
	return c
}

// limitFlags are the flags of the limits. They set the defaults too.
func (a *app) limitFlags(f *pflag.FlagSet, l *limits) {
	f.DurationVar(&l.transaction, "max-transaction", 5*time.Minute, "age of a transaction")
	f.Int64Var(&l.horizonLimit, "max-horizon", maxHorizon,
		"transactions that a standby or slot holds up")
	f.DurationVar(&l.skew, "max-skew", 2*time.Second, "difference of clocks")
	f.Var((*span)(&l.dedupWindow), "dedup-window",
		"how long consumers remember events (default: what they have declared)")
	f.DurationVar(&l.overdue, "max-overdue", overdueAfter, "how long effects may be due")
	f.DurationVar(&l.lease, "lease", 0, "lease of idempotency keys (default: of held keys)")
	f.StringVar(&l.to, "to", "", "the broker of the relay (default: $OUTBOX_TO)")
	f.StringVar(&l.rabbitAPI, "rabbitmq-api", "",
		"RabbitMQ's management API: http://user:password@host:15672 (default: $OUTBOX_RABBITMQ_API)")
	f.StringVar(&l.redis, "redis", "", "where redisonce keeps keys: redis://host:6379/0 "+
		"(default: $OUTBOX_REDIS)")
	f.StringVar(&a.keysPrefix, "keys-prefix", "", "prefix of the tables of keys")
	f.StringVar(&a.effectsPrefix, "effects-prefix", "", "prefix of the tables of effects")
	f.Int64Var(&l.maxBehind, "max-log-behind", maxLogBehind,
		"bytes of log behind")
	f.Int64Var(&l.deadTuples, "max-dead-tuples", 100_000, "dead tuples of events")
}

// examination is one run of doctor with these limits.
func (a *app) examination(s *session, l limits) *examination {
	x := &examination{
		session:       s,
		schema:        a.schema,
		prefix:        a.prefixOf(),
		effectsPrefix: a.effectsPrefix,
		keysPrefix:    a.keysPrefix,
		limits:        l,
		now:           a.now,
	}
	x.rabbitAPI = cmp.Or(x.rabbitAPI, a.Getenv("OUTBOX_RABBITMQ_API"))
	x.redis = cmp.Or(x.redis, a.Getenv("OUTBOX_REDIS"))
	return x
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

// examine runs every check. A check that cannot be run is a warning, unless the reason is in the
// tables, which the first check has reported.
func (x *examination) examine(ctx context.Context) (all []finding) {
	for _, c := range []struct {
		name  string
		run   func(context.Context) error
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
		{"consumers", x.consumers, true},
		{"pooler", x.pooler, false},
		{"versions", x.versions, false},
		{"names", x.names, true},
		{"effects", x.effects, true},
		{"keys", x.keys, true},
		{"leases", x.leases, true},
		{"retention", x.retention, true},
		{"broker", x.broker, true},
		{"log", x.log, true},
	} {
		x.report = report{check: c.name}
		err := c.run(ctx)
		said := c.reads && (x.noTables || x.differ && lacksTables(err))
		if err != nil && !said {
			x.unchecked(ctx, err)
		}
		all = append(all, x.all...)
	}
	return all
}

func firstLine(s string) string {
	first, _, _ := strings.Cut(s, "\n")
	return first
}

func (x *examination) tables(ctx context.Context) error {
	err := x.ob.Repository().Check(ctx)
	if err == nil {
		x.fine("they are those of this version")
		return nil
	}
	x.differ = errors.Is(err, core.ErrTablesDiffer)
	x.noTables = lacksTables(err) && !x.differ
	if x.noTables {
		if hidden := x.hiddenTables(ctx, err); hidden != nil {
			x.noTables = false
			return hidden
		}
		var none *noTablesError
		err = x.db.withTables(ctx, kinds[0], x.schema, x.prefix, err)
		if errors.As(err, &none) && none.table != "" {
			x.lacks(none)
			return nil
		}
		err = errors.Unwrap(err)
	}
	_, list, _ := strings.Cut(err.Error(), "\n") // a difference on each line
	if list == "" {
		list = err.Error()
	}
	x.fail(strings.ReplaceAll(list, "\n", "; "),
		"without a column or a table the relay does not start; without an index each claim reads the whole table",
		"run `outbox migrate up"+x.flags()+"`, or apply the files of `outbox migrate get`; create an index "+
			"that is missing or not valid again")
	return nil
}

// flags are the flags that name the tables of the outbox.
func (x *examination) flags() string { return flagsOf(x.schema, trimDefault(x.prefix, kinds[0])) }

// lacks is about a database without an outbox. It is a failure, unless other tables of ormoutbox are
// there and none of an outbox: then it may be right.
func (x *examination) lacks(e *noTablesError) {
	say := x.fail
	found, up := "there is no table "+e.table, "`outbox migrate up"+e.where+"`"
	fix := "see whether this is the right database; " + up + " creates the tables"
	if len(e.present) > 0 {
		found += "; the database has " + e.others()
		say = x.warn
		fix = "if services publish from this database, " + up + " creates the tables; otherwise nothing is wrong"
	}
	if slices.ContainsFunc(e.present, func(p present) bool { return p.kind.name == e.kind.name }) {
		say, fix = x.fail, "give doctor the flags of the outbox that is there; "+up+" makes another"
	}
	say(found, "a service cannot publish from this database, and doctor looks at no event", fix)
}

func (x *examination) relays(ctx context.Context) error {
	topics, err := x.ob.UnrelayedTopics(ctx)
	if err != nil {
		return err
	}
	if len(topics) > 0 {
		x.fail("nobody relays "+short(strings.Join(topics, ", ")),
			"events wait there, and no relay that is alive takes the topic",
			"start a relay (Run of the outbox, or `outbox relay`) whose publisher takes the topic; `outbox "+
				"status` lists the relays")
	}
	x.otherwise("every topic with waiting events has one")
	return nil
}

func (x *examination) pauses(ctx context.Context) error {
	list, err := x.ob.Pauses(ctx)
	if err != nil {
		return err
	}
	for _, p := range list {
		row := pauseRowOf(p)
		x.warn(row.text(),
			"its events wait, and no relay publishes them",
			fmt.Sprintf("when the reason is gone: `outbox resume %s --reason WHY`", row.argument()))
	}
	x.otherwise("nothing is paused")
	return nil
}

func (x *examination) dead(ctx context.Context) error {
	b, err := x.ob.Backlog(ctx)
	if err != nil {
		return err
	}
	if b.Dead > 0 {
		least := ""
		if b.Dead >= b.Limit {
			least = "at least "
		}
		x.warn(fmt.Sprintf("given up: %s%s; blocked by them: %s%s", least, many(int(b.Dead), "event"),
			least, many(int(b.BlockedKeys), "key")),
			"their destination refused them, and the relay has given them up",
			"see `outbox dead`, repair the cause, then `outbox redrive` or `outbox discard`")
	}
	x.otherwise("no event is dead")
	return nil
}
