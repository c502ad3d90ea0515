package cli

import (
	"bytes"
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
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
	"github.com/ormoutbox/ormoutbox/promoutbox"
)

// relayed is one outbox that the process relays.
type relayed struct {
	relayFlags
	name                        string // empty: it is the only one
	databaseURL, schema, prefix string

	db     *database
	dest   *broker
	outbox *core.Outbox
	logger *slog.Logger

	log  *walrelay.Relay // nil: the relay polls the table
	pool *pgxpool.Pool   // pool of log
}

// relayed returns the outboxes of the configuration, or that of the flags.
func (a *app) relayed(p relayProcess, f relayFlags) ([]*relayed, error) {
	switch {
	case p.config == "" && f.to == "":
		return nil, usage("--to is missing: the broker\n%s", brokerHelp)
	case p.config == "":
		if err := f.check(); err != nil {
			return nil, usage("%w", err)
		}
		return []*relayed{{relayFlags: f, databaseURL: a.databaseURL, schema: a.schema, prefix: a.prefix}}, nil
	case f.to != "" || a.databaseURL != "" || a.schema != "" || a.prefix != "":
		return nil, usage("--config names the databases and brokers: leave --to (OUTBOX_TO), --database-url, " +
			"--schema and --prefix out")
	}
	text := []byte(p.config)
	if !strings.HasPrefix(strings.TrimSpace(p.config), "{") {
		var err error
		if text, err = os.ReadFile(p.config); err != nil {
			return nil, usage("--config: %w", err)
		}
	}
	all, err := a.configured(text, f)
	if err != nil {
		return nil, usage("--config: %w", err)
	}
	for _, o := range all {
		if err := o.check(); err != nil {
			return nil, usage("--config: outbox %s: %w", o.name, err)
		}
	}
	return all, nil
}

// configured reads a configuration. An outbox has the settings of f that it does not set itself.
func (a *app) configured(text []byte, f relayFlags) (all []*relayed, err error) {
	var file struct {
		Outboxes []map[string]any `json:"outboxes"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	d.UseNumber() // a number as it is written
	if err := d.Decode(&file); err != nil {
		return nil, fmt.Errorf("it is not JSON as `outbox relay --help` shows it: %w", err)
	}
	if len(file.Outboxes) == 0 {
		return nil, errors.New("it has no outboxes")
	}
	for i, settings := range file.Outboxes {
		o := &relayed{}
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.register(flags)
		o.relayFlags = f // register has set the defaults
		flags.StringVar(&o.name, "name", "", "")
		flags.StringVar(&o.databaseURL, "database-url", "", "")
		flags.StringVar(&o.schema, "schema", "", "")
		flags.StringVar(&o.prefix, "prefix", "", "")
		for name, v := range settings {
			if err := a.set(flags, name, v); err != nil {
				return nil, fmt.Errorf("outbox %d: %w", i+1, err)
			}
		}
		switch {
		case !relayName.MatchString(o.name):
			return nil, fmt.Errorf("outbox %d: name %q is missing, or has other characters than letters, digits, - "+
				"and _", i+1, o.name)
		case slices.ContainsFunc(all, func(other *relayed) bool { return other.name == o.name }):
			return nil, fmt.Errorf("two outboxes have the name %q", o.name)
		case o.databaseURL == "" || o.to == "":
			return nil, fmt.Errorf("outbox %s: database_url or to is missing", o.name)
		}
		all = append(all, o)
	}
	return all, nil
}

var (
	relayName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	variable  = regexp.MustCompile(`\$\{[^}]*\}`)
)

// kindWords are the types of flags in words.
var kindWords = map[string]string{
	"int": "a number", "bool": "true or false", "duration": "a duration such as 30s or 24h",
	"string": "empty; leave it out to poll the table", // slot is the only text that is checked here
}

// set sets a flag to a value of the configuration.
func (a *app) set(flags *pflag.FlagSet, name string, v any) error {
	flag := flags.Lookup(strings.ReplaceAll(name, "_", "-"))
	if flag == nil || strings.Contains(name, "-") {
		return fmt.Errorf("%.64q is not known: see `outbox relay --help`", name)
	}
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
	if err := flags.Set(flag.Name, text); err != nil {
		return fmt.Errorf("%s: it is %s", name, kindWords[flag.Value.Type()]) // the value may be secret
	}
	return nil
}

// differ refuses two outboxes with the same tables, or with the same slot: one would stand by for
// ever.
func differ(all []*relayed) error {
	tables, slots := map[[3]string]string{}, map[string]string{}
	for _, o := range all {
		key := [3]string{o.db.name, o.schema, o.prefix}
		if other, ok := tables[key]; ok {
			return usage("--config: outboxes %s and %s have the same tables", other, o.name)
		}
		tables[key] = o.name
		if o.slot == "" {
			continue
		}
		slot := fmt.Sprintf("%s:%d %s", o.db.pgx.Host, o.db.pgx.Port, o.slot) // of the whole server
		if other, ok := slots[slot]; ok {
			return usage("--config: outboxes %s and %s have the same slot %s on one server", other, o.name, o.slot)
		}
		slots[slot] = o.name
	}
	return nil
}

// wrap says which outbox an error is of.
func (o *relayed) wrap(err error) error {
	if err == nil || o.name == "" {
		return err
	}
	return &exitError{code: codeOf(err), err: fmt.Errorf("outbox %s: %w", o.name, err)}
}

// open opens the database, the broker and the outbox. Nothing has to answer yet.
func (o *relayed) open(ctx context.Context, a *app, logger *slog.Logger, registry prometheus.Registerer) error {
	o.logger = logger
	if o.name != "" {
		o.logger = logger.With("outbox", o.name)
		registry = prometheus.WrapRegistererWith(prometheus.Labels{"outbox": o.name}, registry)
	}
	of := *a
	of.databaseURL = o.databaseURL
	var err error
	if o.db, err = of.connect(false); err != nil { // Run waits for a database that is away
		return o.wrap(err)
	}
	o.db.SetMaxOpenConns(o.connections)
	o.db.SetMaxIdleConns(o.connections)
	settings := brokerSettings{workers: o.workers, timeout: o.publishTimeout, logger: o.logger}
	if o.dest, err = openBroker(ctx, o.to, settings); err != nil {
		return o.wrap(err)
	}
	metrics := promoutbox.New(promoutbox.Config{})
	cfg := core.Config{
		Publisher: o.dest.publisher, Workers: o.workers, PublishTimeout: o.publishTimeout,
		PollInterval: o.pollInterval, ShutdownTimeout: o.shutdownTimeout, DisableJanitor: o.noJan,
		Retention: core.Retention{
			Keep: o.keep, KeepDiscarded: o.keepDiscarded, DeleteOnSuccess: o.deleteOnSuccess,
		},
		Logger: o.logger, Observer: metrics.Outbox(),
	}
	if o.skipDead {
		cfg.DeadPolicy = core.SkipDead
	}
	if o.slot != "" {
		if err := o.openLog(ctx, cfg); err != nil {
			return o.wrap(err)
		}
		metrics.WatchLog(o.log)
	} else if err := o.openTable(cfg); err != nil {
		return o.wrap(err)
	}
	metrics.Watch(o.outbox)
	return o.wrap(registry.Register(metrics))
}

// openTable makes the outbox that polls the table.
func (o *relayed) openTable(cfg core.Config) (err error) {
	cfg.Repository, err = sqloutbox.New(o.db.DB, sqloutbox.Config{
		Dialect: o.db.dialect, Schema: o.schema, Prefix: o.prefix,
	})
	if err != nil {
		return usage("%w", err)
	}
	cfg.Wake = core.WakePolicy{Disable: o.noWake}
	if o.db.pgx != nil && !o.noWake {
		cfg.Wake.Listen = pgxoutbox.Listen(o.db.pgx, sqloutbox.WakeChannel(o.prefix))
	}
	if o.outbox, err = core.New(cfg); err != nil {
		return usage("%s", withoutPackages(err.Error()))
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

// run relays until ctx ends.
func (o *relayed) run(ctx context.Context) error {
	run := o.outbox.Run
	if o.log != nil {
		run = o.log.Run
	}
	err := run(ctx)
	switch {
	case errors.Is(err, core.ErrNoTables):
		return o.wrap(o.db.withTables(context.WithoutCancel(ctx), kinds[0], o.schema, o.prefix, err))
	case err != nil && o.log != nil:
		return o.wrap(errors.New(inFlags(err)))
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
		if err := o.dest.Close(closing); err != nil { // the relay has given back what was not published
			o.logger.Warn("the broker did not close its connection in order", "broker", o.dest.name, "error", err)
		}
	}
	if o.pool != nil {
		o.pool.Close()
	}
	if o.db != nil {
		err = errors.Join(err, o.db.Close())
	}
	return o.wrap(err)
}
