package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// relayFlags are the settings of one outbox of `outbox relay`.
type relayFlags struct {
	to                      string
	workers                 int
	connections             int
	publishTimeout          time.Duration
	pollInterval            time.Duration
	shutdownTimeout         time.Duration
	keep, keepDiscarded     time.Duration
	deleteOnSuccess         bool
	skipDead, noWake, noJan bool
	logFlags
}

func (f *relayFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.to, "to", "", "the broker")
	flags.IntVar(&f.workers, "workers", 32, "events published at once, 1 to 10000")
	flags.IntVar(&f.connections, "connections", 8, "connections to the database, 2 to 10000")
	flags.DurationVar(&f.publishTimeout, "publish-timeout", 5*time.Second, "time limit of a publish")
	flags.DurationVar(&f.pollInterval, "poll-interval", pollEvery, "pause between polls of the table")
	flags.DurationVar(&f.shutdownTimeout, "shutdown-timeout", 20*time.Second,
		"time to stop; kill the process no earlier")
	f.keep = 7 * 24 * time.Hour
	flags.Var((*span)(&f.keep), "keep", "how long published events stay")
	flags.Var((*span)(&f.keepDiscarded), "keep-discarded",
		"how long discarded events stay; 0: as --keep")
	flags.BoolVar(&f.deleteOnSuccess, "delete-on-success", false, "delete published events")
	flags.BoolVar(&f.skipDead, "skip-dead", false, "a dead event does not block its key")
	flags.BoolVar(&f.noWake, "no-wake", false, "poll, and do not listen for commits")
	flags.BoolVar(&f.noJan, "no-janitor", false, "other processes delete old events")
	f.logFlags.register(flags)
}

// check refuses values that would silently become defaults. It names all of them.
func (f *relayFlags) check() (wrong []error) {
	const most = 10_000
	refuse := func(is bool, format string, args ...any) {
		if is {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	refuse(f.workers < 1 || f.workers > most, "--workers %d: it is 1 to %d", f.workers, most)
	refuse(f.connections < 2 || f.connections > most, "--connections %d: it is 2 to %d", f.connections, most)
	refuse(f.keep <= 0, "--keep %s: it is longer than 0; --delete-on-success keeps nothing", f.keep)
	refuse(f.keepDiscarded < 0, "--keep-discarded %s: it is negative", f.keepDiscarded)
	refuse(f.publishTimeout <= 0, "--publish-timeout %s: it is longer than 0", f.publishTimeout)
	refuse(f.pollInterval <= 0, "--poll-interval %s: it is longer than 0", f.pollInterval)
	refuse(f.shutdownTimeout <= 0, "--shutdown-timeout %s: it is longer than 0", f.shutdownTimeout)
	f.checkLog(refuse)
	return wrong
}

// relayProcess are the settings of the whole process.
type relayProcess struct {
	listen, logLevel, config string
	check                    bool // read the settings, and end
}

func (a *app) relayCommand() *cobra.Command {
	var f relayFlags
	var p relayProcess
	c := &cobra.Command{
		Use:   "relay (--to BROKER | --config FILE)",
		Short: "Run the relay as a process of its own",
		Long: `relay publishes committed events to a broker until SIGTERM or SIGINT: docs/relay.md. The
topics effect.* need a relay in a service. Brokers:

` + brokerHelp + `

Each flag is also a variable of the environment: --poll-interval is OUTBOX_POLL_INTERVAL.

--slot reads the log of PostgreSQL in place of polling the table: docs/walrelay.md. One process reads a
slot, and others with the same slot stand by. A slot with a new name first publishes again every
event of the log that the table still has.

--listen serves /metrics and two probes with JSON (docs/operations.md):

  /healthz   503 if only a restart helps; else 200
  /readyz    503 if the database does not answer or lacks tables, or the relay is stopping; else 200.
             With --config, 503 only if that holds for every outbox. The problems are in the answer.

--config relays several outboxes. It is a file, or the JSON itself:

  {"outboxes": [
    {"name": "shop",    "database_url": "${SHOP_URL}",    "to": "${RABBIT_URL}", "workers": 16},
    {"name": "billing", "database_url": "${BILLING_URL}", "to": "kafka://kafka1:9092", "keep": "24h"}
  ]}

${NAME} is a variable of the environment. An outbox has a name, database_url, to, schema, prefix, and
the flags below with _ in place of -. With "each": ["-80", "80-"] it is one outbox for each text, which
takes the place of {each} in the other settings, such as "name": "shop{each}". Flags on the command
line are its defaults. A relay that fails is logged and started again, and the others go on. --check
connects to nothing: it prints every mistake (exit code 2), or the outboxes and their connections to
each server.

SIGHUP reads the file again, and not the environment: outboxes are added, removed and, if their
settings changed, started anew. The others go on. A file with a mistake changes nothing: the log and
/readyz name the mistake, and the metric outbox_config_refused is 1. The metrics of an outbox have the
label outbox. Events of a removed outbox wait in its table: remove its producers first.`,
		Example: `  outbox relay --to 'amqp://guest:guest@localhost:5672/?topology=queue' --listen :8080
  outbox relay --to kafka://kafka1:9092 --slot outbox --create-slot --listen :8080
  outbox relay --config /etc/outbox/relay.json --check`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.fromEnvironment(c.LocalFlags()); err != nil {
				return err
			}
			return a.relay(c.Context(), p, f)
		},
	}
	flags := c.Flags()
	f.register(flags)
	flags.StringVar(&p.config, "config", "", "file of several outboxes, or JSON")
	flags.StringVar(&p.listen, "listen", "", "address of probes and metrics, such as :8080")
	flags.BoolVar(&p.check, "check", false, "check the settings, and end")
	flags.StringVar(&p.logLevel, "log-level", "info", "debug, info, warn or error")
	complete(c, "repair-slot", "lost", "always", "never")
	complete(c, "log-level", "debug", "info", "warn", "error")
	return c
}

// fromEnvironment sets flags that are not on the command line from OUTBOX_ and their names.
func (a *app) fromEnvironment(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		name := "OUTBOX_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if v := a.Getenv(name); v != "" && !f.Changed && err == nil {
			if e := flags.Set(f.Name, v); e != nil {
				err = usage("%s: %w", name, e)
			}
		}
	})
	return err
}

// logger writes to the standard error.
func (a *app) logger(level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usage("--log-level %q: it is debug, info, warn or error", level)
	}
	opt := &slog.HandlerOptions{Level: l}
	if a.json {
		opt.ReplaceAttr = func(_ []string, v slog.Attr) slog.Attr {
			if v.Value.Kind() == slog.KindDuration { // 2s, and not a number of nanoseconds
				v.Value = slog.StringValue(v.Value.Duration().String())
			}
			return v
		}
		return slog.New(slog.NewJSONHandler(a.Err, opt)), nil
	}
	return slog.New(slog.NewTextHandler(a.Err, opt)), nil
}

// relay publishes until ctx ends.
func (a *app) relay(ctx context.Context, p relayProcess, f relayFlags) error {
	logger, err := a.logger(p.logLevel)
	if err != nil {
		return err
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // without it the signal ends the process
	defer signal.Stop(hangup)
	all, err := a.relaySettings(ctx, p, f)
	if err != nil || p.check {
		return err
	}
	running := newFleet(a, p, f, logger)
	if p.listen != "" {
		stop, err := serve(ctx, p.listen, running.probes(ctx), logger)
		if err != nil {
			return err
		}
		defer stop()
	}
	return running.run(ctx, all, hangup)
}

// relaySettings reads the settings and returns every mistake in them. It connects to nothing. With
// --check it prints what it has found.
func (a *app) relaySettings(ctx context.Context, p relayProcess, f relayFlags) (all []relaySettings, err error) {
	all, wrong := a.readSettings(p, f)
	var opened []*relayed
	for _, s := range all {
		o := &relayed{relaySettings: s}
		opened = append(opened, o)
		defer func() { err = errors.Join(err, o.close(ctx)) }()
		wrong = append(wrong, o.open(ctx, a, slog.New(slog.DiscardHandler), nil)...)
	}
	wrong = append(wrong, differ(opened)...)
	if err := allOf(wrong); err != nil {
		return nil, err
	}
	if p.check {
		return nil, a.printChecked(opened)
	}
	return all, nil
}

// serve serves until stop is called.
func serve(ctx context.Context, address string, h http.Handler, logger *slog.Logger) (stop func(), err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := s.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			logger.Error("the probes and metrics ended", "error", err)
		}
	}()
	logger.Info("listening", "address", l.Addr().String())
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = s.Shutdown(ctx)
	}, nil
}
