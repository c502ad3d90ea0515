package metrics

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/command"
)

// The gauges that come from the database: see Set.Samples.
var (
	BacklogMessages = Desc{
		Name: "outbox_backlog_messages", Labels: []string{"state"},
		Help: "Events that are not finished, counted up to a limit. Use max over processes.",
	}
	BacklogOldestAge = Desc{
		Name: "outbox_backlog_oldest_age_seconds",
		Help: "Age of the oldest pending event, by the clock of the database; 0 without one.",
	}
	BlockedKeys = Desc{
		Name: "outbox_blocked_keys", Help: "Keys that a dead event holds up, counted up to a limit.",
	}
	Pauses = Desc{
		Name: "outbox_pauses", Labels: []string{"scope"},
		Help: "Pauses of operators that hold: of everything (1 or 0), of single destinations and of tenants.",
	}
	RateLimits = Desc{
		Name: "outbox_rate_limits", Help: "Destinations with a rate that an operator has set.",
	}
	UnrelayedTopics = Desc{
		Name: "outbox_unrelayed_topics", Help: "Topics with pending events that no living relay takes.",
	}
	TypeMessages = Desc{
		Name: "outbox_type_backlog_messages", Labels: []string{"event_type", "state"},
		Help: "Events that are not finished by event type, of the part of the backlog that is counted. State: new, " +
			"retry, dead. Use max over processes.",
	}
	LogBehind = Desc{
		Name: "outbox_log_behind_bytes", Labels: []string{"slot"},
		Help: "Log of the database that the reader of the slot has not confirmed. Use max over processes.",
	}
	LogKept = Desc{
		Name: "outbox_log_kept_bytes", Labels: []string{"slot"},
		Help: "Log that the server keeps on its disk because of the slot. Use max over processes.",
	}
	LogSafe = Desc{
		Name: "outbox_log_safe_bytes", Labels: []string{"slot"},
		Help: "Log that may be written until the slot may be lost; missing without max_slot_wal_keep_size. Use min " +
			"over processes.",
	}
	LogActive = Desc{
		Name: "outbox_log_slot_active", Labels: []string{"slot"},
		Help: "1 while a process reads the slot, else 0. Use max over processes.",
	}
	LogLost = Desc{
		Name: "outbox_log_slot_lost", Labels: []string{"slot"},
		Help: "1 while the slot is missing, or the server has removed log that was not read; else 0. Use max over " +
			"processes.",
	}
	LogRepairing = Desc{
		Name: "outbox_log_repairing", Labels: []string{"slot"},
		Help: "1 while events of a lost slot are published from the table, else 0. Use max over processes.",
	}
	LogSpilledKeys = Desc{
		Name: "outbox_log_spilled_keys", Labels: []string{"slot"},
		Help: "Keys that are published from the table, because an event was refused. Only the process that reads " +
			"the slot has it.",
	}
	EffectMessages = Desc{
		Name: "effect_backlog_messages", Labels: []string{"channel", "state"},
		Help: "Effects that are not finished, counted up to a limit. Use max over processes.",
	}
	EffectOldestAge = Desc{
		Name: "effect_backlog_oldest_age_seconds", Labels: []string{"channel"},
		Help: "How long the oldest pending effect has been due, by the clock of the database; 0 without one.",
	}
)

// Watched returns the gauges that come from the database.
func Watched() []Desc {
	return []Desc{
		BacklogMessages, BacklogOldestAge, BlockedKeys, Pauses, RateLimits, UnrelayedTopics, TypeMessages,
		LogBehind, LogKept, LogSafe, LogActive, LogLost, LogRepairing, LogSpilledKeys,
		EffectMessages, EffectOldestAge,
	}
}

// Sample is the value of one series of a gauge that comes from the database.
type Sample struct {
	Desc   Desc
	Values []string // of the labels
	Value  float64
}

// Backlogger has the methods that Watch needs, as a *core.Outbox has. If it has the methods Pauses,
// Rates and UnrelayedTopics of one, or ListAudit and CountAudit, it is asked for these too.
type Backlogger interface {
	Backlog(ctx context.Context) (core.Backlog, error)
}

// EffectBacklogger is what WatchEffects asks: a *command.Queue.
type EffectBacklogger interface {
	Backlog(ctx context.Context) ([]command.Backlog, error)
}

// TypeBacklogger has the method that WatchTypes needs, as a *core.Outbox has.
type TypeBacklogger interface {
	TypeBacklog(ctx context.Context) ([]core.TypeBacklog, error)
}

// LogBacklogger has the method that WatchLog needs, as a *walrelay.Relay has.
type LogBacklogger interface {
	LogBacklog(ctx context.Context) (core.LogBacklog, error)
}

// operated is implemented by *core.Outbox.
type operated interface {
	Pauses(ctx context.Context) ([]core.Pause, error)
	Rates(ctx context.Context) ([]core.Rate, error)
	UnrelayedTopics(ctx context.Context) ([]string, error)
}

// watch asks the database for the gauges.
type watch struct {
	every, timeout time.Duration
	sparing        bool // a query that takes long is asked less often
	maxLabels      int
	types          []string
	failed         Counter
	audit          map[string]Counter // counter of audit rows, by action

	mu              sync.Mutex // held while the database is asked: scrapes wait for one answer
	outbox, effects []*source
	byType, log     []*source
}

// source is one question and its last answer.
type source struct {
	ask   func(ctx context.Context) ([]Sample, error)
	every time.Duration
	asked time.Time
	spare time.Duration // after asked, in which the database is left alone
	last  []Sample      // nil after a failure
}

// spares is how many times as long as a query takes the database is left alone, so that it costs
// one percent of a connection. After a failure it is asked again as usual, because the gauges are
// missing meanwhile.
const spares = 100

func newWatch(m Meter, cfg Config, sparing bool) *watch {
	return &watch{
		every: cfg.BacklogEvery, sparing: sparing, timeout: cfg.BacklogTimeout,
		maxLabels: cfg.MaxLabels, types: cfg.Types,
		failed: counter(m, "outbox_backlog_errors_total",
			"Queries for the gauges that come from the database that failed. Those gauges are missing meanwhile.")(),
		audit: newAuditRows(m),
	}
}

// Watch says which outbox Samples asks, and whose audit rows it counts in outbox_audit_rows_total.
// A second call replaces it.
func (s *Set) Watch(outbox Backlogger) {
	w := s.watch
	sources := []*source{{every: w.every, ask: func(ctx context.Context) ([]Sample, error) {
		b, err := outbox.Backlog(ctx)
		return []Sample{
			{BacklogMessages, []string{"pending"}, float64(b.Pending)},
			{BacklogMessages, []string{"dead"}, float64(b.Dead)},
			{BacklogOldestAge, nil, b.OldestAge.Seconds()},
			{BlockedKeys, nil, float64(b.BlockedKeys)},
		}, err
	}}}
	if o, ok := outbox.(operated); ok {
		sources = append(sources, &source{every: w.every, ask: func(ctx context.Context) ([]Sample, error) {
			return pauses(ctx, o)
		}}, &source{every: w.every, ask: func(ctx context.Context) ([]Sample, error) {
			list, err := o.Rates(ctx)
			return []Sample{{RateLimits, nil, float64(len(list))}}, err
		}}, &source{
			every: 4 * w.every, // it reads more rows than the others
			ask: func(ctx context.Context) ([]Sample, error) {
				list, err := o.UnrelayedTopics(ctx)
				return []Sample{{UnrelayedTopics, nil, float64(len(list))}}, err
			},
		})
	}
	if o, ok := outbox.(audited); ok {
		trail := newAuditTrail(w.audit)
		sources = append(sources, &source{every: w.every, ask: func(ctx context.Context) ([]Sample, error) {
			return nil, trail.look(ctx, o)
		}})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outbox = sources
}

func pauses(ctx context.Context, o operated) ([]Sample, error) {
	list, err := o.Pauses(ctx)
	all, topics, tenants := 0, 0, 0
	for _, p := range list {
		switch {
		case p.All:
			all++
		case p.Tenant != "":
			tenants++
		default:
			topics++
		}
	}
	return []Sample{
		{Pauses, []string{"all"}, float64(all)},
		{Pauses, []string{"topic"}, float64(topics)},
		{Pauses, []string{"tenant"}, float64(tenants)},
	}, err
}

// WatchEffects says whose backlog of effects Samples asks for. A second call replaces it.
func (s *Set) WatchEffects(queue EffectBacklogger) {
	w := s.watch
	ask := func(ctx context.Context) ([]Sample, error) {
		list, err := queue.Backlog(ctx)
		var all []Sample
		var rest command.Backlog // of the channels above the limit
		for n, b := range list {
			if n >= w.maxLabels {
				rest.Channel = other
				rest.Pending, rest.Dead = rest.Pending+b.Pending, rest.Dead+b.Dead
				rest.OldestAge = max(rest.OldestAge, b.OldestAge)
				continue
			}
			all = append(all, effectSamples(b)...)
		}
		if rest.Channel != "" {
			all = append(all, effectSamples(rest)...)
		}
		return all, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.effects = []*source{{every: w.every, ask: ask}}
}

// WatchTypes says which outbox Samples asks for its backlog by event type, at most every fourth
// time that it asks for the others, because it reads more rows. A second call replaces it.
func (s *Set) WatchTypes(outbox TypeBacklogger) {
	w := s.watch
	ask := func(ctx context.Context) ([]Sample, error) {
		list, err := outbox.TypeBacklog(ctx)
		return typeSamples(list, w.types), err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byType = []*source{{every: 4 * w.every, ask: ask}}
}

// typeSamples returns a sample for each named type, also for one without events, and one for the
// sum of all others.
func typeSamples(list []core.TypeBacklog, types []string) (all []Sample) {
	named := map[string]core.TypeBacklog{other: {}}
	for _, name := range types {
		named[name] = core.TypeBacklog{}
	}
	for _, t := range list {
		name := t.Type
		if _, ok := named[name]; !ok {
			name = other
		}
		sum := named[name]
		sum.New, sum.Retry, sum.Dead = sum.New+t.New, sum.Retry+t.Retry, sum.Dead+t.Dead
		named[name] = sum
	}
	for name, sum := range named {
		all = append(all, Sample{TypeMessages, []string{name, "new"}, float64(sum.New)},
			Sample{TypeMessages, []string{name, "retry"}, float64(sum.Retry)},
			Sample{TypeMessages, []string{name, "dead"}, float64(sum.Dead)})
	}
	return all
}

// WatchLog says which readers of the log Samples asks, each for its slot. A slot that two of them
// have is that of the first; the questions to the other one count as failures. A second call
// replaces them all.
func (s *Set) WatchLog(relays ...LogBacklogger) {
	w := s.watch
	owners := map[string]int{} // the relay of each slot
	var sources []*source
	for n, relay := range relays {
		sources = append(sources, &source{every: w.every, ask: func(ctx context.Context) ([]Sample, error) {
			b, err := relay.LogBacklog(ctx)
			if err != nil {
				return nil, err
			}
			if owner, taken := owners[b.Slot]; taken && owner != n {
				return nil, fmt.Errorf("metrics: two relays have the slot %s", b.Slot)
			}
			owners[b.Slot] = n
			return logSamples(b), nil
		}})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = sources
}

func logSamples(b core.LogBacklog) []Sample {
	slot := []string{b.Slot}
	all := []Sample{
		{LogActive, slot, one(b.Active)}, {LogLost, slot, one(b.Lost)}, {LogRepairing, slot, one(b.Repairing)},
	}
	if b.Known {
		all = append(all, Sample{LogBehind, slot, float64(b.Behind)}, Sample{LogKept, slot, float64(b.Kept)})
	}
	if b.Bounded {
		all = append(all, Sample{LogSafe, slot, float64(b.Safe)})
	}
	if b.Leading {
		all = append(all, Sample{LogSpilledKeys, slot, float64(b.SpilledKeys)})
	}
	return all
}

func effectSamples(b command.Backlog) []Sample {
	return []Sample{
		{EffectMessages, []string{b.Channel, "pending"}, float64(b.Pending)},
		{EffectMessages, []string{b.Channel, "dead"}, float64(b.Dead)},
		{EffectOldestAge, []string{b.Channel}, b.OldestAge.Seconds()},
	}
}

// Samples returns the values of the gauges of Watched. It asks the database if the last answers are
// older than Config.BacklogEvery. Those of UnrelayedTopics and TypeMessages may be four times as
// old. By default it asks a query that takes longer than 150 ms less often, so that each costs at
// most one percent of a connection. The gauges of a query that failed are missing, because an old
// figure would hide an outage, and the failure is counted. Gauges are missing without a failure if
// nothing is watched, or if the Repository has no such rows.
func (s *Set) Samples(ctx context.Context) (all []Sample) {
	w := s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	// A database that hangs must not cost the scrape, whose other metrics are needed then.
	ctx, cancel := context.WithTimeout(ctx, 2*w.timeout)
	defer cancel()
	for _, of := range [4][]*source{w.outbox, w.byType, w.log, w.effects} {
		for _, src := range of {
			if src.asked.IsZero() || time.Since(src.asked) >= max(src.every, src.spare) {
				w.refresh(ctx, src)
			}
			all = append(all, src.last...)
		}
	}
	return all
}

func (w *watch) refresh(ctx context.Context, src *source) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	var err error
	began := time.Now()
	src.last, err = src.ask(ctx)
	src.asked = time.Now()
	src.spare = 0
	if err == nil {
		if w.sparing {
			src.spare = spares * src.asked.Sub(began)
		}
		return
	}
	src.last = nil
	if !errors.Is(err, errors.ErrUnsupported) {
		w.failed.Add(1)
	}
}
