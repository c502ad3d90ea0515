package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
	"github.com/ormoutbox/ormoutbox/promoutbox"
)

// relayFlags are the settings of `outbox relay`.
type relayFlags struct {
	to, listen, logLevel    string
	workers                 int
	connections             int
	publishTimeout          time.Duration
	pollInterval            time.Duration
	shutdownTimeout         time.Duration
	keep                    time.Duration
	deleteOnSuccess         bool
	skipDead, noWake, noJan bool
}

func (a *app) relayCommand() *cobra.Command {
	var f relayFlags
	c := &cobra.Command{
		Use:   "relay --to BROKER",
		Short: "Run the relay as a process of its own",
		Long: `relay publishes committed events to a broker until SIGTERM or SIGINT. Then it publishes the events
that it holds, gives the rest back, and ends with exit code 0. Any number of relays may run.

Brokers:
` + brokerHelp + `

Every flag can be set in the environment too: --to is OUTBOX_TO, --poll-interval is
OUTBOX_POLL_INTERVAL. --listen serves three paths:

  /healthz   200 while the relay runs
  /readyz    200 while the relay runs and the database answers; 503 while it starts or stops
  /metrics   the metrics of docs/metrics.md, for Prometheus

The log goes to the standard error; with --json it is JSON. --timeout does not apply. Services that
only insert need no broker. Tables of effects (topics effect.*) are not relayed here.`,
		Example: `  outbox relay --to 'amqp://guest:guest@localhost:5672/?topology=queue' --listen :8080
  OUTBOX_TO=kafka://kafka1:9092,kafka2:9092 outbox relay --listen :8080`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.fromEnvironment(c.LocalFlags()); err != nil {
				return err
			}
			return a.relay(c.Context(), f)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.to, "to", "", "the broker")
	flags.StringVar(&f.listen, "listen", "", "address of /healthz, /readyz and /metrics, such as :8080; empty: none")
	flags.IntVar(&f.workers, "workers", 32, "events that are published at once")
	flags.IntVar(&f.connections, "connections", 8, "connections to the database")
	flags.DurationVar(&f.publishTimeout, "publish-timeout", 5*time.Second, "time limit of a publish")
	flags.DurationVar(&f.pollInterval, "poll-interval", time.Second, "pause between polls of the table")
	flags.DurationVar(&f.shutdownTimeout, "shutdown-timeout", 20*time.Second,
		"how long the relay takes to stop; kill it no earlier")
	flags.DurationVar(&f.keep, "keep", 7*24*time.Hour, "how long published events stay in the table")
	flags.BoolVar(&f.deleteOnSuccess, "delete-on-success", false, "delete events when they are published")
	flags.BoolVar(&f.skipDead, "skip-dead", false, "a dead event does not hold up its key (DeadPolicy SkipDead)")
	flags.BoolVar(&f.noWake, "no-wake", false, "only poll, and do not listen for commits of other processes")
	flags.BoolVar(&f.noJan, "no-janitor", false, "leave the deletion of old events to other processes")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	_ = c.RegisterFlagCompletionFunc("log-level", cobra.FixedCompletions(
		[]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp))
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
		return slog.New(slog.NewJSONHandler(a.Err, opt)), nil
	}
	return slog.New(slog.NewTextHandler(a.Err, opt)), nil
}

// relay publishes until ctx ends.
func (a *app) relay(ctx context.Context, f relayFlags) (err error) {
	if f.to == "" {
		return usage("--to is missing: the broker\n%s", brokerHelp)
	}
	logger, err := a.logger(f.logLevel)
	if err != nil {
		return err
	}
	db, err := a.connect(false) // Run waits for a database that is away
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(f.connections)
	db.SetMaxIdleConns(f.connections)
	to, err := openBroker(ctx, f.to, brokerSettings{workers: f.workers, timeout: f.publishTimeout, logger: logger})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.publishTimeout)
		defer cancel()
		err = errors.Join(err, to.Close(closing))
	}()
	table, err := sqloutbox.New(db.DB, sqloutbox.Config{Dialect: db.dialect, Schema: a.schema, Prefix: a.prefix})
	if err != nil {
		return usage("%w", err)
	}
	metrics := promoutbox.New(promoutbox.Config{})
	cfg := core.Config{
		Repository: table, Publisher: to.Publisher, Workers: f.workers, PublishTimeout: f.publishTimeout,
		PollInterval: f.pollInterval, ShutdownTimeout: f.shutdownTimeout, DisableJanitor: f.noJan,
		Retention: core.Retention{Keep: f.keep, DeleteOnSuccess: f.deleteOnSuccess},
		Wake:      core.WakePolicy{Disable: f.noWake}, Logger: logger, Observer: metrics.Outbox(),
	}
	if f.skipDead {
		cfg.DeadPolicy = core.SkipDead
	}
	if db.pgx != nil && !f.noWake {
		cfg.Wake.Listen = pgxoutbox.Listen(db.pgx, sqloutbox.WakeChannel(a.prefix))
	}
	ob, err := core.New(cfg)
	if err != nil {
		return usage("%w", err)
	}
	metrics.Watch(ob)
	state := &relayState{db: db}
	if f.listen != "" {
		stop, err := serve(ctx, f.listen, state.handler(metrics), logger)
		if err != nil {
			return err
		}
		defer stop()
	}
	logger.Info("relaying", "database", db.name, "broker", to.name, "node", ob.Node())
	state.running.Store(true)
	go func() {
		<-ctx.Done()
		state.stopping.Store(true)
		logger.Info("stopping", "within", f.shutdownTimeout)
	}()
	err = ob.Run(ctx)
	state.running.Store(false)
	if errors.Is(err, core.ErrNoTables) {
		return fmt.Errorf("%w\n(`outbox migrate up` creates or upgrades the tables)", err)
	}
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		logger.Info("stopped")
		return nil
	}
	return err
}

// relayState is what the probes ask.
type relayState struct {
	db                *database
	running, stopping atomic.Bool
}

func (s *relayState) handler(metrics *promoutbox.Metrics) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, s.running.Load(), "the relay does not run")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		switch {
		case !s.running.Load():
			answer(w, false, "the relay does not run")
		case s.stopping.Load():
			answer(w, false, "the relay is stopping")
		default:
			answer(w, s.db.PingContext(ctx) == nil, "the database does not answer")
		}
	})
	return mux
}

func answer(w http.ResponseWriter, ok bool, problem string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, problem+"\n")
		return
	}
	_, _ = io.WriteString(w, "ok\n")
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
