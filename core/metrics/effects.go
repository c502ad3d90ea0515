package metrics

import (
	"github.com/ormoutbox/ormoutbox/core/once/command"
)

// results are the values of label outcome.
var results = []command.ExecResult{
	command.Executed, command.Retried, command.Dead, command.Lost, command.Skipped, command.PutOff,
}

// effectMetrics are those of command.WorkerConfig.Observer.
type effectMetrics struct {
	channels *series[*channelMetrics]
}

// channelMetrics are the series of one channel.
type channelMetrics struct {
	results map[command.ExecResult]Counter
	took    Histogram
}

func newEffectMetrics(m Meter, cfg Config) *effectMetrics {
	executions := counter(m, "effect_executions_total", "Ends of executions, as command.ExecResult names them.",
		"channel", "outcome")
	took := histogram(m, "effect_execution_duration_seconds", "Duration of executions.", callBuckets, "channel")
	return &effectMetrics{channels: newSeries(cfg.MaxLabels, func(channel string) *channelMetrics {
		c := &channelMetrics{results: map[command.ExecResult]Counter{}, took: took(channel)}
		for _, r := range results {
			c.results[r] = executions(channel, string(r))
		}
		return c
	})}
}

// Effects returns the observer of command.WorkerConfig.
func (s *Set) Effects() func(command.ExecInfo) {
	return func(info command.ExecInfo) {
		c := s.effects.channels.get(info.Channel)
		if n, ok := c.results[info.Result]; ok {
			n.Add(1)
		}
		if info.Result != command.Skipped && info.Result != command.PutOff {
			c.took.Observe(info.Duration.Seconds())
		}
	}
}
