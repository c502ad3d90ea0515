package metrics

import (
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core/inbox"
)

// inboxMetrics counts inbox.Observer callbacks.
type inboxMetrics struct {
	*cleanup
	handlers *series[*handlerMetrics] // by consumer and handler
}

// handlerMetrics are the series of one handler of a consumer.
type handlerMetrics struct {
	processed, duplicate, stale, inProgress, failed, dead Counter

	produced  Counter
	cached    map[bool]Counter // by whether the cache had it
	took, age Histogram
}

func newInboxMetrics(m Meter, cfg Config) *inboxMetrics {
	messages := counter(m, "inbox_messages_total", "Deliveries of events. Outcome: processed, duplicate, stale, "+
		"in_progress, failed, dead.", "consumer", "handler", "outcome")
	took := histogram(m, "inbox_process_duration_seconds",
		"From the arrival of a message to the end of its transaction.", callBuckets, "consumer", "handler")
	age := histogram(m, "inbox_event_age_seconds", "From the time of an event until it was processed.", lagBuckets,
		"consumer", "handler")
	produced := counter(m, "inbox_produced_messages_total",
		"Messages that handlers returned, in transactions that need not have committed.", "consumer", "handler")
	cached := counter(m, "inbox_cache_requests_total", "Questions to the cache.", "consumer", "handler", "outcome")
	return &inboxMetrics{
		cleanup: newCleanup(m, "inbox", "Events and keys that the cleanup deleted."),
		handlers: newSeries(cfg.MaxLabels, func(name string) *handlerMetrics {
			consumer, handler, two := strings.Cut(name, separator)
			if !two { // "_other"
				handler = name
			}
			outcome := func(name string) Counter { return messages(consumer, handler, name) }
			return &handlerMetrics{
				processed: outcome("processed"), duplicate: outcome("duplicate"), stale: outcome("stale"),
				inProgress: outcome("in_progress"), failed: outcome("failed"), dead: outcome("dead"),
				produced: produced(consumer, handler), took: took(consumer, handler), age: age(consumer, handler),
				cached: map[bool]Counter{
					true: cached(consumer, handler, "hit"), false: cached(consumer, handler, "miss"),
				},
			}
		}),
	}
}

// separator is in no name of a consumer or a handler.
const separator = "\x00"

func (i *inboxMetrics) of(info inbox.Info) *handlerMetrics {
	return i.handlers.get(info.Event.Consumer + separator + info.Event.Handler)
}

// Inbox returns the observer of inbox.Config.
func (s *Set) Inbox() *inbox.Observer {
	i := s.inbox
	return &inbox.Observer{
		Processed: func(info inbox.Info) {
			h := i.of(info)
			h.processed.Add(1)
			h.took.Observe(info.Duration.Seconds())
			if !info.OccurredAt.IsZero() {
				h.age.Observe(max(0, time.Since(info.OccurredAt).Seconds()))
			}
		},
		Duplicate:  func(info inbox.Info) { i.of(info).duplicate.Add(1) },
		Stale:      func(info inbox.Info) { i.of(info).stale.Add(1) },
		InProgress: func(info inbox.Info) { i.of(info).inProgress.Add(1) },
		Failed:     func(info inbox.Info) { i.of(info).failed.Add(1) },
		Dead:       func(info inbox.Info) { i.of(info).dead.Add(1) },
		Produced:   func(info inbox.Info, messages int) { i.of(info).produced.Add(float64(messages)) },
		Cached:     func(info inbox.Info, hit bool) { i.of(info).cached[hit].Add(1) },
		Cleaned:    i.cleaned,
	}
}
