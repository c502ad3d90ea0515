package metrics

import "github.com/ormoutbox/ormoutbox/core/once"

// keyMetrics counts once.Observer callbacks.
type keyMetrics struct {
	*cleanup
	scopes *series[*scopeMetrics]
}

// scopeMetrics are the series of one scope of keys.
type scopeMetrics struct {
	decided map[once.State]Counter

	failed, taken, done, undone, lost, retried Counter
	waited, duration                           Histogram
}

func newKeyMetrics(m Meter, cfg Config) *keyMetrics {
	decided := counter(m, "idempotency_keys_total", "Answers of the store. State: fresh, in_progress, done, mismatch, "+
		"abandoned, or error.", "scope", "state")
	taken := counter(m, "idempotency_keys_taken_over_total", "Keys whose earlier holder disappeared.", "scope")
	runs := counter(m, "idempotency_runs_total",
		"Runs of the work. Outcome: done, or failed, also if its end could not be recorded.", "scope", "outcome")
	lost := counter(m, "idempotency_leases_lost_total", "Leases of running work that were lost.", "scope")
	retried := counter(m, "idempotency_transaction_retries_total", "Transactions that failed and are run again.",
		"scope")
	waited := histogram(m, "idempotency_store_duration_seconds", "Until the answer of the store, pauses included.",
		callBuckets, "scope")
	took := histogram(m, "idempotency_run_duration_seconds", "Duration of the work.", callBuckets, "scope")
	return &keyMetrics{
		cleanup: newCleanup(m, "idempotency", "Expired keys that were deleted."),
		scopes: newSeries(cfg.MaxLabels, func(scope string) *scopeMetrics {
			s := &scopeMetrics{
				decided: map[once.State]Counter{}, failed: decided(scope, "error"), taken: taken(scope),
				done: runs(scope, "done"), undone: runs(scope, "failed"), lost: lost(scope),
				retried: retried(scope), waited: waited(scope), duration: took(scope),
			}
			for _, state := range []once.State{once.Fresh, once.InProgress, once.Done, once.Mismatch, once.Abandoned} {
				s.decided[state] = decided(scope, state.String())
			}
			return s
		}),
	}
}

// Keys returns the observer of once.Config, and of Keys of an HTTP middleware. Label scope is
// once.Key.Scope, never its ID.
func (s *Set) Keys() *once.Observer {
	k := s.keys
	return &once.Observer{
		Decided: func(info once.DecideInfo) {
			s := k.scopes.get(info.Key.Scope)
			c, ok := s.decided[info.State]
			if info.Err != nil || !ok {
				c = s.failed
			}
			c.Add(1)
			s.waited.Observe(info.Waited.Seconds())
			if info.TakenOver {
				s.taken.Add(1)
			}
		},
		Ran: func(info once.RunInfo) {
			s := k.scopes.get(info.Key.Scope)
			s.duration.Observe(info.Duration.Seconds())
			if info.Err != nil {
				s.undone.Add(1)
				return
			}
			s.done.Add(1)
		},
		LeaseLost: func(key once.Key, _ error) { k.scopes.get(key.Scope).lost.Add(1) },
		Retried:   func(key once.Key, _ error) { k.scopes.get(key.Scope).retried.Add(1) },
		Cleaned:   k.cleaned,
	}
}
