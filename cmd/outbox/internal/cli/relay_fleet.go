package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/ormoutbox/ormoutbox/core"
)

const (
	// Outboxes that begin together do so one after another, so that a server of many databases is not
	// asked for all their connections at once.
	startGap = 20 * time.Millisecond
	// The pause before an outbox that ended is opened again begins with firstRetry and doubles up to
	// lastRetry. It begins anew after the outbox has run for steadyAfter.
	firstRetry, lastRetry = time.Second, time.Minute
	steadyAfter           = 2 * time.Minute
)

// fleet has the outboxes that `outbox relay` relays. With --config none of them ends the process, and
// SIGHUP changes them.
type fleet struct {
	app      *app
	process  relayProcess
	flags    relayFlags
	logger   *slog.Logger
	registry *prometheus.Registry

	databases databases
	running   sync.WaitGroup        // of the members, also of those that were removed
	broken    chan struct{}         // closed: the only outbox has ended
	refused   atomic.Pointer[error] // why the last SIGHUP has changed nothing; nil: it has

	mu      sync.Mutex
	members []*member          // in their order in the file
	last    map[string]*member // the last one of each name, also of those that were removed
}

// member is an outbox of a fleet, from its start until it is removed or changed.
type member struct {
	relaySettings
	fleet *fleet
	stop  context.CancelFunc
	ended chan struct{} // closed when nothing of it is left
	err   error         // of its end; read it after ended

	mu     sync.Mutex
	outbox *core.Outbox // nil: it is not open now
	failed error        // why it is not; nil: it begins
}

// hasFile reports whether the configuration is in a file.
func (p relayProcess) hasFile() bool {
	return p.config != "" && !strings.HasPrefix(strings.TrimSpace(p.config), "{")
}

func newFleet(a *app, p relayProcess, f relayFlags, logger *slog.Logger) *fleet {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	fleet := &fleet{
		app: a, process: p, flags: f, logger: logger, registry: registry, broken: make(chan struct{}),
		databases: databases{open: map[poolKey]*sharedDatabase{}}, last: map[string]*member{},
	}
	registry.MustRegister(fleet)
	return fleet
}

// run relays until ctx ends, or the only outbox does without a configuration. It reads the file
// again at each hangup.
func (f *fleet) run(ctx context.Context, all []relaySettings, hangup <-chan os.Signal) error {
	members, stop := context.WithCancel(ctx)
	defer stop()
	f.change(members, all)
	for over := false; !over; {
		select {
		case <-hangup:
			f.reload(members)
		case <-f.broken:
			over = true
		case <-ctx.Done():
			over = true
		}
	}
	var within time.Duration
	for _, m := range f.current() {
		within = max(within, m.shutdownTimeout)
	}
	f.logger.Info("stopping", "within", within)
	stop()
	f.running.Wait()
	var errs []error
	for _, m := range f.current() {
		errs = append(errs, m.err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	f.logger.Info("stopped")
	return nil
}

// current returns the members.
func (f *fleet) current() []*member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members
}

// reload reads the file again.
func (f *fleet) reload(ctx context.Context) {
	if !f.process.hasFile() {
		f.logger.Warn("SIGHUP changes nothing: the settings are not in a file; --config names one")
		return
	}
	all, err := f.app.relaySettings(ctx, f.process, f.flags)
	if err != nil {
		refused := fmt.Errorf("SIGHUP has changed nothing: %s: %w", f.process.config, err)
		f.refused.Store(&refused)
		f.logger.Error("SIGHUP changes nothing: the file is refused, fix it and send the signal again",
			"file", f.process.config, "error", err)
		return
	}
	f.refused.Store(nil)
	f.change(ctx, all)
}

// change makes these outboxes the fleet's. Those that have the same settings go on.
func (f *fleet) change(ctx context.Context, all []relaySettings) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := f.members == nil
	was := map[string]*member{}
	for _, m := range f.members {
		was[m.name] = m
	}
	var added, changed, removed []string
	var members []*member // f.members is read without the lock
	for _, s := range all {
		old := was[s.name]
		delete(was, s.name)
		if old != nil && old.relaySettings == s {
			members = append(members, old)
			continue
		}
		m, before := &member{relaySettings: s, fleet: f, ended: make(chan struct{})}, f.last[s.name]
		members = append(members, m)
		f.last[s.name] = m
		wait := startGap * time.Duration(len(added)+len(changed))
		if old == nil {
			added = append(added, s.name)
		} else {
			changed = append(changed, s.name)
			old.stop()
		}
		var running context.Context
		running, m.stop = context.WithCancel(ctx)
		f.running.Go(func() { m.run(running, before, wait) })
	}
	for _, m := range f.members {
		if was[m.name] != nil {
			removed = append(removed, m.name)
			m.stop()
		}
	}
	f.members = members
	if !first {
		f.logger.Info("SIGHUP: the file was read again", "file", f.process.config, "added", added,
			"changed", changed, "removed", removed, "outboxes", len(members))
	}
}

// run runs the outbox until ctx ends. It begins after its predecessor has ended, and a pause.
func (m *member) run(ctx context.Context, before *member, pause time.Duration) {
	defer close(m.ended)
	if before != nil {
		<-before.ended
	}
	for failures := 1; sleep(ctx, pause); failures++ {
		began := time.Now()
		m.err = m.once(ctx)
		if m.fleet.process.config == "" {
			close(m.fleet.broken)
			return
		}
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > steadyAfter {
			failures = 1
		}
		pause = min(firstRetry<<min(failures-1, 10), lastRetry)
		m.fleet.logger.Error("this relay has ended, and the others go on: it is started again", "outbox", m.name,
			"next_try", pause, "error", m.err)
		m.setState(nil, m.err)
		m.err = nil // it was reported
	}
}

// sleep reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// once opens the outbox, and runs it until it fails or ctx ends.
func (m *member) once(ctx context.Context) (err error) {
	o := &relayed{relaySettings: m.relaySettings}
	defer func() { err = errors.Join(err, o.close(ctx)) }()
	if err := allOf(o.open(ctx, m.fleet.app, m.fleet.logger, &m.fleet.databases)); err != nil {
		return err
	}
	forget, err := o.observe(m.fleet.registry)
	if err != nil {
		return err
	}
	defer forget()
	o.begins()
	m.setState(o.outbox, nil)
	// From here on a failure of this relay is no reason to restart the process.
	return o.run(ctx, func() { m.setState(nil, nil) })
}

// setState sets what the probes ask for.
func (m *member) setState(outbox *core.Outbox, failed error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outbox, m.failed = outbox, failed
}
