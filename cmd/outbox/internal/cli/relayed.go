package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
	"github.com/ormoutbox/ormoutbox/promoutbox"
)

// relaySettings are the settings of one outbox. Two that are equal mean the same.
type relaySettings struct {
	relayFlags
	name                        string // empty: it is the only one
	databaseURL, schema, prefix string
}

// relayed is one outbox that the process relays.
type relayed struct {
	relaySettings

	db      *database
	wakes   *sharedListener // of db, on PostgreSQL
	give    func() error    // gives db back
	dest    *broker
	outbox  *core.Outbox
	metrics *promoutbox.Metrics
	logger  *slog.Logger

	log  *walrelay.Relay // nil: the relay polls the table
	pool *pgxpool.Pool   // pool of log
}

// readSettings returns the outboxes of the configuration, or of the flags, and their problems.
func (a *app) readSettings(p relayProcess, f relayFlags) (all []relaySettings, wrong []error) {
	switch {
	case p.config == "" && f.to == "":
		return nil, []error{usage("--to is missing: the broker\n%s", brokerHelp)}
	case p.config == "":
		o := relaySettings{relayFlags: f, databaseURL: a.databaseURL, schema: a.schema, prefix: a.prefix}
		for _, err := range f.check() {
			wrong = append(wrong, usage("%w", err))
		}
		return []relaySettings{o}, wrong
	case f.to != "" || a.databaseURL != "" || a.schema != "" || a.prefix != "":
		return nil, []error{usage("--config names the databases and brokers: leave --to (OUTBOX_TO), --database-url, " +
			"--schema and --prefix out")}
	}
	text := []byte(p.config)
	if p.hasFile() {
		var err error
		if text, err = os.ReadFile(p.config); err != nil {
			return nil, []error{usage("--config: %w", err)}
		}
	}
	all, found := a.configured(text, f)
	for _, err := range found {
		wrong = append(wrong, usage("--config: %w", err))
	}
	return all, wrong
}

// configured reads a configuration. An outbox has the settings of f that it does not set itself.
func (a *app) configured(text []byte, f relayFlags) (all []relaySettings, wrong []error) {
	list, wrong := outboxesOf(text)
	if len(list) == 0 && len(wrong) == 0 {
		return nil, []error{errors.New("it has no outboxes")}
	}
	for i, settings := range list {
		if settings == nil { // it is no object
			continue
		}
		var o relaySettings
		found := a.fill(&o, f, settings)
		place := fmt.Sprintf("outbox %d", i+1)
		named := relayName.MatchString(o.name)
		switch {
		case !named:
			found = append(found, fmt.Errorf("name %q is missing, or has other characters than letters, digits, - "+
				"and _", o.name))
		case slices.ContainsFunc(all, func(other relaySettings) bool { return other.name == o.name }):
			found = append(found, fmt.Errorf("two outboxes have the name %q", o.name))
		default:
			place = "outbox " + o.name
		}
		found = append(found, o.check()...)
		for _, err := range found {
			wrong = append(wrong, fmt.Errorf("%s: %w", place, err))
		}
		o.name = strings.TrimPrefix(place, "outbox ")
		all = append(all, o)
	}
	return all, wrong
}

// fill sets what an outbox of a configuration sets.
func (a *app) fill(o *relaySettings, f relayFlags, settings object) (wrong []error) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.register(flags)
	o.relayFlags = f // register has set the defaults
	flags.StringVar(&o.name, "name", "", "")
	flags.StringVar(&o.databaseURL, "database-url", "", "")
	flags.StringVar(&o.schema, "schema", "", "")
	flags.StringVar(&o.prefix, "prefix", "", "")
	for i, s := range settings {
		if slices.ContainsFunc(settings[:i], func(other pair) bool { return other.name == s.name }) {
			wrong = append(wrong, fmt.Errorf("%.64q is set twice", s.name))
			continue
		}
		if err := a.set(flags, s); err != nil {
			wrong = append(wrong, err)
		}
	}
	for _, name := range []string{"database_url", "to"} {
		if !slices.ContainsFunc(settings, func(s pair) bool { return s.name == name }) {
			wrong = append(wrong, fmt.Errorf("%s is missing", name))
		}
	}
	return wrong
}

var (
	relayName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	variable  = regexp.MustCompile(`\$\{[^}]*\}`)
)

// kindWords are the types of flags in words.
var kindWords = map[string]string{
	"int": "a number", "bool": "true or false", "duration": "a duration such as 30s or 24h",
}

// set sets a flag to a value of the configuration.
func (a *app) set(flags *pflag.FlagSet, s pair) error {
	flag := flags.Lookup(strings.ReplaceAll(s.name, "_", "-"))
	if flag == nil || strings.Contains(s.name, "-") {
		return fmt.Errorf("%.64q is not known: see `outbox relay --help`", s.name)
	}
	name, v := s.name, s.value()
	switch v.(type) {
	case string, bool, json.Number:
	default:
		return fmt.Errorf("%s is no text, number, true or false", name)
	}
	var missing error
	text := variable.ReplaceAllStringFunc(fmt.Sprint(v), func(ref string) string {
		value := a.Getenv(ref[2 : len(ref)-1])
		if value == "" {
			missing = fmt.Errorf("%s: %s is not set in the environment", name, ref)
		}
		return value
	})
	if missing != nil {
		return missing
	}
	if text == "" {
		return fmt.Errorf("%s: it is empty; leave it out for its default", name)
	}
	if err := flags.Set(flag.Name, text); err != nil {
		return fmt.Errorf("%s: it is %s", name, kindWords[flag.Value.Type()]) // the value may be secret
	}
	return nil
}

// differ refuses two outboxes with the same tables, or with the same slot: one would stand by for
// ever.
func differ(all []*relayed) (wrong []error) {
	tables, slots := map[[3]string]string{}, map[string]string{}
	for _, o := range all {
		if o.db == nil { // its address is wrong
			continue
		}
		key := [3]string{o.db.name, o.schema, cmp.Or(o.prefix, sqloutbox.DefaultPrefix)}
		if o.db.dialect == core.MySQL && o.schema != "" { // it is another database of the server
			key[0], key[1] = o.db.server+"/"+o.schema, ""
		}
		if other, ok := tables[key]; ok {
			wrong = append(wrong, usage("--config: outboxes %s and %s have the same tables", other, o.name))
		}
		tables[key] = o.name
		if o.slot == "" || o.db.pgx == nil {
			continue
		}
		slot := o.db.server + " " + o.slot // of the whole server
		if other, ok := slots[slot]; ok {
			wrong = append(wrong, usage("--config: outboxes %s and %s have the same slot %s on one server", other,
				o.name, o.slot))
		}
		slots[slot] = o.name
	}
	return wrong
}

// allOf is one error for all. Wrong use goes before everything else.
func allOf(wrong []error) error {
	err := errors.Join(wrong...)
	if slices.ContainsFunc(wrong, func(err error) bool { return codeOf(err) == ExitUsage }) {
		return usage("%w", err)
	}
	return err
}

// wrap adds the name of the outbox to an error.
func (o *relaySettings) wrap(err error) error {
	if err == nil || o.name == "" {
		return err
	}
	return &exitError{code: codeOf(err), err: fmt.Errorf("outbox %s: %w", o.name, err)}
}

// open opens the database, the broker and the outbox, and returns all problems. Nothing has to
// answer yet. Without databases to share, the settings are only checked: the file of SQLite may be
// absent.
func (o *relayed) open(ctx context.Context, a *app, logger *slog.Logger, shared *databases) (wrong []error) {
	add := func(err error) {
		if err != nil {
			wrong = append(wrong, o.wrap(err))
		}
	}
	o.logger = logger
	if o.name != "" {
		o.logger = logger.With("outbox", o.name)
	}
	if len(o.check()) > 0 { // defaults in place of wrong settings, to find further problems
		to, slot := o.to, o.slot
		o.register(pflag.NewFlagSet("", pflag.ContinueOnError)) // sets the defaults
		if o.to = to; slotName.MatchString(slot) {
			o.slot = slot
		}
	}
	var err error
	if o.databaseURL != "" || o.name == "" {
		add(o.connect(a, shared)) // Run waits for a database that is away
	}
	if o.to != "" {
		settings := brokerSettings{workers: o.workers, timeout: o.publishTimeout, logger: o.logger}
		o.dest, err = openBroker(ctx, o.to, settings)
		add(err)
	}
	if o.db == nil {
		return wrong
	}
	o.metrics = promoutbox.New(promoutbox.Config{})
	cfg := core.Config{
		Relay: relay.Config{
			Workers: o.workers, PublishTimeout: o.publishTimeout,
			PollInterval: o.pollInterval, ShutdownTimeout: o.shutdownTimeout, DisableJanitor: o.noJan,
			Retention: relay.Retention{
				Keep: o.keep, KeepDiscarded: o.keepDiscarded, DeleteOnSuccess: o.deleteOnSuccess,
			},
		}, Logger: o.logger, Observer: o.metrics.Outbox(),
	}
	if o.dest != nil {
		cfg.Publisher = o.dest.publisher
	}
	if o.skipDead {
		cfg.DeadPolicy = core.SkipDead
	}
	if o.slot != "" {
		add(o.openLog(ctx, cfg))
	} else {
		add(o.openTable(ctx, cfg, shared == nil))
	}
	return wrong
}

// connect reads the address of the database.
func (o *relayed) connect(a *app, shared *databases) (err error) {
	of := *a
	of.databaseURL = o.databaseURL
	if shared == nil {
		if o.db, err = of.connect(true); err == nil {
			o.give = o.db.Close
		}
		return err
	}
	db, give, err := shared.take(&of, &o.relaySettings)
	if err == nil {
		o.db, o.wakes, o.give = db.database, db.wakes, give
	}
	return err
}

// observe registers the metrics of the outbox, which is open, until forget is called.
func (o *relayed) observe(registry prometheus.Registerer) (forget func(), err error) {
	if o.name != "" {
		registry = prometheus.WrapRegistererWith(prometheus.Labels{"outbox": o.name}, registry)
	}
	if o.log != nil {
		o.metrics.WatchLog(o.log.LogBacklog)
	}
	o.metrics.Watch(o.outbox)
	if err := registry.Register(o.metrics); err != nil {
		return nil, o.wrap(err)
	}
	return func() { registry.Unregister(o.metrics) }, nil
}

// openTable makes the outbox that polls the table. Without a connection to the server (absent), the
// server's version is not asked for.
func (o *relayed) openTable(ctx context.Context, cfg core.Config, absent bool) (err error) {
	tables := sqloutbox.Config{Schema: o.schema, Prefix: o.prefix}
	if absent {
		tables.Dialect = o.db.dialect
	}
	cfg.Repository, err = sqloutbox.NewWithDialect(ctx, o.db.DB, o.db.dialect, tables)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return fmt.Errorf("%s: %w", o.db.name, errors.Unwrap(err)) // without the hint for a program
	case err != nil:
		return usage("%w", err)
	}
	cfg.Wake = core.WakePolicy{Disable: o.noWake}
	if o.db.pgx != nil && !o.noWake {
		cfg.Wake.Listen = o.wakes.listen(sqloutbox.WakeChannel(o.prefix))
	}
	if o.outbox, err = core.New(cfg); err != nil {
		return usage("%w", relayError{err})
	}
	return nil
}

// begins logs that the relay begins.
func (o *relayed) begins() {
	args := []any{"database", o.db.name, "broker", o.dest.name, "node", o.outbox.Node()}
	if o.slot != "" {
		args = append(args, "slot", o.slot)
	}
	o.logger.Info("relaying", args...)
}

// run relays until ctx ends. It calls ended before it looks for the cause of an error.
func (o *relayed) run(ctx context.Context, ended func()) error {
	run := o.outbox.Run
	if o.log != nil {
		run = o.log.Run
	}
	err := run(ctx)
	ended()
	switch {
	case errors.Is(err, core.ErrNoTables):
		return o.wrap(o.db.withTables(context.WithoutCancel(ctx), kinds[0], o.schema, o.prefix, err))
	case err != nil && o.log != nil:
		return o.wrap(relayError{err})
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return nil
	}
	return o.wrap(err)
}

// close closes what open has opened, first the broker.
func (o *relayed) close(ctx context.Context) (err error) {
	if o.dest != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.publishTimeout)
		defer cancel()
		if err := o.dest.Close(closing); err != nil { // the relay has given back unpublished events
			o.logger.Warn("the broker did not close its connection in order", "broker", o.dest.name, "error", err)
		}
	}
	if o.pool != nil {
		o.pool.Close()
	}
	if o.give != nil {
		err = errors.Join(err, o.give())
	}
	return o.wrap(err)
}
