package metrics

import (
	"strconv"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// fallbacks are the reasons why the poller publishes an event of the fast path.
var fallbacks = []core.FallbackReason{
	core.FallbackFull, core.FallbackUnknown, core.FallbackLate, core.FallbackOrder, core.FallbackStopped,
	core.FallbackShutdown, core.FallbackLost,
}

// outcomes are the values of label outcome.
var outcomes = map[core.PublishResult]string{
	core.PublishDone:        "published",
	core.PublishRetry:       "retried",
	core.PublishDead:        "dead",
	core.PublishUnavailable: "unavailable",
}

// outboxMetrics counts core.Observer callbacks.
type outboxMetrics struct {
	topics *series[*topicMetrics]
	types  *series[map[core.PublishResult]Counter]

	untracked                               Counter
	marked, markFail, lateAcks              Counter
	markTook                                Histogram
	claimFail, conflicts, deleted, operated counterVec
	claimSize, claimTook, operating         histogramVec
}

// topicMetrics are the series of one topic.
type topicMetrics struct {
	inserted map[bool]Counter // by whether the fast path has the event
	relayed  map[core.Path]map[core.PublishResult]Counter
	took     Histogram
	lag      map[core.Path]Histogram
	fast     Counter
	fellBack map[core.FallbackReason]Counter
	paused   Gauge
	probes   Counter
	stuck    Gauge
}

func newOutboxMetrics(m Meter, cfg Config) *outboxMetrics {
	inserted := counter(m, "outbox_enqueue_messages_total",
		"Events that Publish wrote, in transactions that need not have committed. Path: hot with the fast path, "+
			"cold for the poller.", "destination", "path")
	relayed := counter(m, "outbox_relay_messages_total",
		"Ends of publishes. Outcome: published, retried, dead, unavailable (no attempt was spent).",
		"destination", "path", "outcome")
	byType := counter(m, "outbox_relay_type_messages_total",
		"Ends of publishes by event type. Outcome: as outbox_relay_messages_total.", "event_type", "outcome")
	took := histogram(m, "outbox_relay_publish_duration_seconds", "Duration of publishes.", callBuckets, "destination")
	lag := histogram(m, "outbox_delivery_lag_seconds",
		"From the commit (hot) or the insert (cold) of an event until it was published.", lagBuckets,
		"destination", "path")
	fast := counter(m, "outbox_fastpath_messages_total",
		"Events of the fast path. Outcome: sent, or why the poller sends them.", "destination", "outcome")
	paused := gauge(m, "outbox_relay_paused", "1 while a destination is stopped because it is unavailable.",
		"destination")
	probes := counter(m, "outbox_relay_probe_failures_total",
		"Failed tries of a stopped destination.", "destination")
	stuck := gauge(m, "outbox_relay_stuck_publishes",
		"Publishes whose publisher ignores the end of its context. Restart the process if it stays above 0.",
		"destination")

	return &outboxMetrics{
		topics: newSeries(cfg.MaxLabels, func(topic string) *topicMetrics {
			t := &topicMetrics{
				inserted: map[bool]Counter{
					true: inserted(topic, string(core.PathHot)), false: inserted(topic, string(core.PathCold)),
				},
				relayed: map[core.Path]map[core.PublishResult]Counter{}, lag: map[core.Path]Histogram{},
				fellBack: map[core.FallbackReason]Counter{}, fast: fast(topic, "sent"), took: took(topic),
				paused: paused(topic), probes: probes(topic), stuck: stuck(topic),
			}
			for _, path := range []core.Path{core.PathHot, core.PathCold} {
				t.lag[path] = lag(topic, string(path))
				t.relayed[path] = map[core.PublishResult]Counter{}
				for result, outcome := range outcomes {
					t.relayed[path][result] = relayed(topic, string(path), outcome)
				}
			}
			for _, reason := range fallbacks {
				t.fellBack[reason] = fast(topic, string(reason))
			}
			return t
		}, cfg.Topics...),
		types: newSeries(cfg.MaxLabels, func(typ string) map[core.PublishResult]Counter {
			t := map[core.PublishResult]Counter{}
			for result, outcome := range outcomes {
				t[result] = byType(typ, outcome)
			}
			return t
		}, cfg.Types...),
		untracked: counter(m, "outbox_enqueue_untracked_total",
			"Rows in transactions whose commit the outbox cannot see: a pool bypasses the plugin.")(),
		claimSize: with(histogram(m, "outbox_relay_claim_size", "Rows of each claim.", rowBuckets, "ordered"),
			bools...),
		claimTook: with(histogram(m, "outbox_relay_claim_duration_seconds", "Duration of claims.", callBuckets,
			"ordered"), bools...),
		claimFail: with(counter(m, "outbox_relay_claim_errors_total", "Claims that failed.", "ordered"), bools...),
		marked:    counter(m, "outbox_relay_marked_total", "Rows whose end of a publish was written down.")(),
		markTook: histogram(m, "outbox_relay_mark_duration_seconds", "Duration of batches of marks.",
			callBuckets)(),
		markFail: counter(m, "outbox_relay_mark_errors_total", "Batches of marks that failed.")(),
		conflicts: with(counter(m, "outbox_relay_lease_conflicts_total",
			"Rows that a transition did not change, because the claim was no longer held.", "transition"),
			"retry", "dead", "renew", "release"),
		lateAcks: counter(m, "outbox_relay_late_acks_total",
			"Rows that were acknowledged when they were already done, discarded or deleted.")(),
		deleted: with(counter(m, "outbox_cleanup_deleted_total", "Rows that the cleanup deleted.", "table"), "event",
			"key"),
		operated: with(counter(m, "outbox_operator_events_total",
			"Events that people changed from this process. Action: redrive, discard, replay, edit, erase.", "action"),
			actions...),
		operating: with(histogram(m, "outbox_operator_duration_seconds",
			"Duration of the transactions by which people changed events from this process: a call, or a step of a "+
				"plan. Action: as outbox_operator_events_total.", callBuckets, "action"), actions...),
	}
}

// actions are the values of label action.
var actions = []string{
	string(core.OperatorRedrive), string(core.OperatorDiscard), string(core.OperatorReplay), string(core.OperatorEdit),
	string(core.OperatorErase),
}

// bools are the values of label ordered.
var bools = []string{"true", "false"}

// Outbox returns the observer of core.Config, and of Config.Observer of each adapter. Join it with
// an observer of your own by core.TeeObserver.
func (s *Set) Outbox() *core.Observer {
	o := s.outbox
	return &core.Observer{
		Inserted:  func(topic string, hot bool) { o.topics.get(topic).inserted[hot].Add(1) },
		Untracked: func(rows int) { o.untracked.Add(float64(rows)) },
		FellBack: func(topic string, reason core.FallbackReason) {
			if c, ok := o.topics.get(topic).fellBack[reason]; ok {
				c.Add(1)
			}
		},
		Published: o.published,
		Claimed:   o.claimed,
		Marked: func(rows int, d time.Duration, err error) {
			if err != nil {
				o.markFail.Add(1)
				return
			}
			o.marked.Add(float64(rows))
			o.markTook.Observe(d.Seconds())
		},
		Fenced: func(transition string, rows int) {
			o.conflicts(transition).Add(float64(rows))
		},
		LateAcks:       func(rows int) { o.lateAcks.Add(float64(rows)) },
		Stuck:          func(topic string, total int) { o.topics.get(topic).stuck.Set(float64(total)) },
		BreakerChanged: func(topic string, open bool, _ error) { o.topics.get(topic).paused.Set(one(open)) },
		ProbeFailed:    func(info core.ProbeInfo) { o.topics.get(info.Topic).probes.Add(1) },
		Cleaned:        func(table string, rows int) { o.deleted(table).Add(float64(rows)) },
		Operated: func(info core.OperatedInfo) {
			o.operated(string(info.Action)).Add(float64(info.Rows))
			o.operating(string(info.Action)).Observe(info.Duration.Seconds())
		},
	}
}

func (o *outboxMetrics) published(info core.PublishInfo) {
	t := o.topics.get(info.Topic)
	if c, ok := t.relayed[info.Path][info.Result]; ok {
		c.Add(1)
	}
	if c, ok := o.types.get(info.Type)[info.Result]; ok {
		c.Add(1)
	}
	t.took.Observe(info.Duration.Seconds())
	if info.Result != core.PublishDone {
		return
	}
	t.lag[info.Path].Observe(info.Lag.Seconds())
	if info.Path == core.PathHot {
		t.fast.Add(1)
	}
}

func (o *outboxMetrics) claimed(info core.ClaimInfo) {
	ordered := strconv.FormatBool(info.Ordered)
	if info.Err != nil {
		o.claimFail(ordered).Add(1)
		return
	}
	o.claimSize(ordered).Observe(float64(info.Rows))
	o.claimTook(ordered).Observe(info.Duration.Seconds())
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
