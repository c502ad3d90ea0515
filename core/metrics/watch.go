package metrics

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once/command"
)

// The gauges that come from the database: see Set.Samples.
var (
	backlogMessages = Desc{
		Name: "outbox_backlog_messages", Labels: []string{"state"},
		Help: "Events that are not finished, counted up to a limit. Use max over processes.",
	}
	backlogOldestAge = Desc{
		Name: "outbox_backlog_oldest_age_seconds",
		Help: "Age of the oldest pending event, by the clock of the database; 0 without one.",
	}
	blockedKeys = Desc{Name: "outbox_blocked_keys", Help: "Keys that a dead event holds up, counted up to a limit."}
	pausesHeld  = Desc{
		Name: "outbox_pauses", Labels: []string{"scope"},
		Help: "Pauses of operators that hold: of everything (1 or 0), of single destinations and of tenants.",
	}
	rateLimits      = Desc{Name: "outbox_rate_limits", Help: "Destinations with a rate that an operator has set."}
	unrelayedTopics = Desc{
		Name: "outbox_unrelayed_topics", Help: "Topics with pending events that no living relay takes.",
	}
	typeMessages = Desc{
		Name: "outbox_type_backlog_messages", Labels: []string{"event_type", "state"},
		Help: "Events that are not finished by event type, of the part of the backlog that is counted. State: new, " +
			"retry, dead. Use max over processes.",
	}
	logBehind = Desc{
		Name: "outbox_log_behind_bytes", Labels: []string{"slot"},
		Help: "Log of the database that the reader of the slot has not confirmed. Use max over processes.",
	}
	logKept = Desc{
		Name: "outbox_log_kept_bytes", Labels: []string{"slot"},
		Help: "Log that the server keeps on its disk because of the slot. Use max over processes.",
	}
	logSafe = Desc{
		Name: "outbox_log_safe_bytes", Labels: []string{"slot"},
		Help: "Log that may be written until the slot may be lost; missing without max_slot_wal_keep_size. Use min " +
			"over processes.",
	}
	logActive = Desc{
		Name: "outbox_log_slot_active", Labels: []string{"slot"},
		Help: "1 while a process reads the slot, else 0. Use max over processes.",
	}
	logLost = Desc{
		Name: "outbox_log_slot_lost", Labels: []string{"slot"},
		Help: "1 while the slot is missing, or the server has removed log that was not read; else 0. Use max over " +
			"processes.",
	}
	logRepairing = Desc{
		Name: "outbox_log_repairing", Labels: []string{"slot"},
		Help: "1 while events of a lost slot are published from the table, else 0. Use max over processes.",
	}
	logSpilledKeys = Desc{
		Name: "outbox_log_spilled_keys", Labels: []string{"slot"},
		Help: "Keys that are published from the table, because an event was refused. Only the process that reads " +
			"the slot has it.",
	}
	inboxBacklog = Desc{
		Name: "inbox_backlog_messages", Labels: []string{"consumer", "handler", "state"},
		Help: "Messages that a handler has failed with and that are not processed, counted up to a limit. State: " +
			"failed (tried again when delivered again), dead (waits for a person), redriven (waits for its " +
			"delivery). Use max over processes.",
	}
	inboxOldestAge = Desc{
		Name: "inbox_backlog_oldest_age_seconds", Labels: []string{"consumer", "handler"},
		Help: "How long ago the oldest of these messages failed first, or was redriven, by the clock of the " +
			"database; 0 without one.",
	}
	effectMessages = Desc{
		Name: "effect_backlog_messages", Labels: []string{"channel", "state"},
		Help: "Effects that are not finished, counted up to a limit. Use max over processes.",
	}
	effectOldestAge = Desc{
		Name: "effect_backlog_oldest_age_seconds", Labels: []string{"channel"},
		Help: "How long the oldest pending effect has been due, by the clock of the database; 0 without one.",
	}
)

// Watched returns the gauges that come from the database.
func Watched() []Desc {
	return []Desc{
		backlogMessages, backlogOldestAge, blockedKeys, pausesHeld, rateLimits, unrelayedTopics, typeMessages,
		logBehind, logKept, logSafe, logActive, logLost, logRepairing, logSpilledKeys,
		inboxBacklog, inboxOldestAge, effectMessages, effectOldestAge,
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
	inbox           []*source
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

// Watch sets the outbox that Samples asks, and whose audit rows outbox_audit_rows_total counts. A
// second call replaces it.
func (s *Set) Watch(outbox Backlogger) {
	w := s.watch
	var sources []*source
	ask := func(question func(ctx context.Context) ([]Sample, error)) {
		sources = append(sources, &source{every: w.every, ask: question})
	}
	ask(func(ctx context.Context) ([]Sample, error) {
		b, err := outbox.Backlog(ctx)
		return []Sample{
			{backlogMessages, []string{"pending"}, float64(b.Pending)},
			{backlogMessages, []string{"dead"}, float64(b.Dead)},
			{backlogOldestAge, nil, b.OldestAge.Seconds()},
			{blockedKeys, nil, float64(b.BlockedKeys)},
		}, err
	})
	if o, ok := outbox.(operated); ok {
		ask(func(ctx context.Context) ([]Sample, error) { return pauses(ctx, o) })
		ask(func(ctx context.Context) ([]Sample, error) {
			list, err := o.Rates(ctx)
			return []Sample{{rateLimits, nil, float64(len(list))}}, err
		})
		ask(func(ctx context.Context) ([]Sample, error) {
			list, err := o.UnrelayedTopics(ctx)
			return []Sample{{unrelayedTopics, nil, float64(len(list))}}, err
		})
		sources[len(sources)-1].every *= 4 // it reads more rows than the others
	}
	if o, ok := outbox.(audited); ok {
		trail := newAuditTrail(w.audit)
		ask(func(ctx context.Context) ([]Sample, error) { return nil, trail.look(ctx, o) })
	}
	w.set(&w.outbox, sources)
}

// set replaces sources of w.
func (w *watch) set(of *[]*source, by []*source) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*of = by
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
		{pausesHeld, []string{"all"}, float64(all)},
		{pausesHeld, []string{"topic"}, float64(topics)},
		{pausesHeld, []string{"tenant"}, float64(tenants)},
	}, err
}

// WatchEffects sets the backlog of effects that Samples asks for. A second call replaces it.
func (s *Set) WatchEffects(backlog func(context.Context) ([]command.Backlog, error)) {
	w := s.watch
	ask := func(ctx context.Context) ([]Sample, error) {
		list, err := backlog(ctx)
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
	w.set(&w.effects, []*source{{every: w.every, ask: ask}})
}

// WatchInbox sets the backlog of consumers that Samples asks for: (*inbox.Inbox).Backlog. A second
// call replaces it.
func (s *Set) WatchInbox(backlog func(context.Context) ([]inbox.Backlog, error)) {
	w := s.watch
	ask := func(ctx context.Context) ([]Sample, error) {
		list, err := backlog(ctx)
		var all []Sample
		rest := inbox.Backlog{Consumer: other, Handler: other} // of the handlers above the limit
		for n, b := range list {
			if n >= w.maxLabels {
				rest.Failed, rest.Dead, rest.Redriven = rest.Failed+b.Failed, rest.Dead+b.Dead, rest.Redriven+b.Redriven
				rest.Oldest = max(rest.Oldest, b.Oldest)
				continue
			}
			all = append(all, inboxSamples(b)...)
		}
		if len(list) > w.maxLabels {
			all = append(all, inboxSamples(rest)...)
		}
		return all, err
	}
	w.set(&w.inbox, []*source{{every: w.every, ask: ask}})
}

func inboxSamples(b inbox.Backlog) []Sample {
	return []Sample{
		{inboxBacklog, []string{b.Consumer, b.Handler, "failed"}, float64(b.Failed)},
		{inboxBacklog, []string{b.Consumer, b.Handler, "dead"}, float64(b.Dead)},
		{inboxBacklog, []string{b.Consumer, b.Handler, "redriven"}, float64(b.Redriven)},
		{inboxOldestAge, []string{b.Consumer, b.Handler}, b.Oldest.Seconds()},
	}
}

// WatchTypes sets the outbox that Samples asks for its backlog by event type, at most every fourth
// time that it asks for the others, because it reads more rows. A second call replaces it.
func (s *Set) WatchTypes(backlog func(context.Context) ([]core.TypeBacklog, error)) {
	w := s.watch
	ask := func(ctx context.Context) ([]Sample, error) {
		list, err := backlog(ctx)
		return typeSamples(list, w.types), err
	}
	w.set(&w.byType, []*source{{every: 4 * w.every, ask: ask}})
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
		all = append(all, Sample{typeMessages, []string{name, "new"}, float64(sum.New)},
			Sample{typeMessages, []string{name, "retry"}, float64(sum.Retry)},
			Sample{typeMessages, []string{name, "dead"}, float64(sum.Dead)})
	}
	return all
}

// WatchLog sets the readers of the log that Samples asks, each for its slot. If two have the same
// slot, the first one counts, and questions to the other count as failures. A second call replaces
// them all.
func (s *Set) WatchLog(backlogs ...func(context.Context) (core.LogBacklog, error)) {
	w := s.watch
	owners := map[string]int{} // the relay of each slot
	var sources []*source
	for n, backlog := range backlogs {
		sources = append(sources, &source{every: w.every, ask: func(ctx context.Context) ([]Sample, error) {
			b, err := backlog(ctx)
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
	w.set(&w.log, sources)
}

func logSamples(b core.LogBacklog) []Sample {
	slot := []string{b.Slot}
	all := []Sample{
		{logActive, slot, one(b.Active)}, {logLost, slot, one(b.Lost)}, {logRepairing, slot, one(b.Repairing)},
	}
	if b.Known {
		all = append(all, Sample{logBehind, slot, float64(b.Behind)}, Sample{logKept, slot, float64(b.Kept)})
	}
	if b.Bounded {
		all = append(all, Sample{logSafe, slot, float64(b.Safe)})
	}
	if b.Leading {
		all = append(all, Sample{logSpilledKeys, slot, float64(b.SpilledKeys)})
	}
	return all
}

func effectSamples(b command.Backlog) []Sample {
	return []Sample{
		{effectMessages, []string{b.Channel, "pending"}, float64(b.Pending)},
		{effectMessages, []string{b.Channel, "dead"}, float64(b.Dead)},
		{effectOldestAge, []string{b.Channel}, b.OldestAge.Seconds()},
	}
}

// Samples returns the values of the gauges of Watched. It asks the database if the last answers are
// older than Config.BacklogEvery; outbox_unrelayed_topics and outbox_type_backlog_messages may be
// four times as old. By default a query that takes longer than 150 ms runs less often, so that each
// query costs at most one percent of a connection's time. The gauges of a query that failed are
// missing, because an old figure would hide an outage, and the failure is counted. Gauges are
// missing without a failure if nothing is watched, or if the Repository lacks the rows.
func (s *Set) Samples(ctx context.Context) (all []Sample) {
	w := s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	// A database that hangs must not cost the scrape, whose other metrics are needed then.
	ctx, cancel := context.WithTimeout(ctx, 2*w.timeout)
	defer cancel()
	for _, of := range [5][]*source{w.outbox, w.byType, w.log, w.inbox, w.effects} {
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
