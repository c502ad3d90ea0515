package metrics

import (
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
)

// callMetrics are the series of the calls with one name: how they ended, and how long they took.
type callMetrics struct {
	outcomes map[string]Counter
	took     Histogram
}

func newCallMetrics(cfg Config, ends counterVec, took histogramVec, outcomes ...string) *series[*callMetrics] {
	return newSeries(cfg.MaxLabels, func(name string) *callMetrics {
		c := &callMetrics{outcomes: map[string]Counter{}, took: took(name)}
		for _, outcome := range outcomes {
			c.outcomes[outcome] = ends(name, outcome)
		}
		return c
	})
}

func (c *callMetrics) ended(outcome string) {
	if n, ok := c.outcomes[outcome]; ok {
		n.Add(1)
	}
}

// newEffectMetrics counts command.WorkerConfig.Observer's callbacks, by channel.
func newEffectMetrics(m Meter, cfg Config) *series[*callMetrics] {
	return newCallMetrics(
		cfg,
		counter(
			m,
			"effect_executions_total",
			"Ends of executions, as command.ExecInfo names them.",
			"channel",
			"outcome",
		),
		histogram(m, "effect_execution_duration_seconds", "Duration of executions.", callBuckets, "channel"),
		"executed",
		"retried",
		"dead",
		"lost",
		"skipped",
		"put_off",
	)
}

// Effects returns the observer of command.WorkerConfig.
func (s *Set) Effects() func(command.ExecInfo) {
	return func(info command.ExecInfo) {
		c := s.effects.get(info.Channel)
		c.ended(info.Result)
		if info.Result != "skipped" && info.Result != "put_off" {
			c.took.Observe(info.Duration.Seconds())
		}
	}
}

// newHTTPMetrics counts httpkey.Config.Observer's callbacks, by route.
func newHTTPMetrics(m Meter, cfg Config) *series[*callMetrics] {
	return newCallMetrics(
		cfg,
		counter(
			m,
			"idempotency_requests_total",
			"Requests by their answer, as httpkey.Info names it.",
			"route",
			"outcome",
		),
		histogram(m, "idempotency_request_duration_seconds", "From the arrival of a request to the end of its answer.",
			callBuckets, "route"),
		"executed",
		"replayed",
		"in_flight",
		"mismatch",
		"missing_key",
		"invalid_key",
		"missing_scope",
		"unreadable_body",
		"body_too_large",
		"abandoned",
		"not_kept",
		"bypassed",
		"store_error",
		"client_gone",
	)
}

// HTTP returns the observer of httpkey.Config. Label route is httpkey.Info.Route, never the key.
func (s *Set) HTTP() func(httpkey.Info) {
	return func(info httpkey.Info) {
		r := s.http.get(info.Route)
		r.ended(info.Answer)
		r.took.Observe(info.Duration.Seconds())
	}
}
