package orders

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// latency measures what the business waits for. The metrics of the library say where the time goes.
type latency struct{ toCaptured, toNotified, toFulfilled prometheus.Histogram }

func newLatency(register prometheus.Registerer) *latency {
	histogram := func(name, help string) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600},
		})
		register.MustRegister(h)
		return h
	}
	return &latency{
		toCaptured: histogram("quote_accepted_to_order_captured_seconds",
			"From the moment in which the customer accepted the quote to the commit of the order."),
		toNotified: histogram("quote_accepted_to_notification_sent_seconds",
			"From the moment in which the customer accepted the quote to the mail about the order."),
		toFulfilled: histogram("order_line_requested_to_fulfilled_seconds",
			"From the request for a line to the commit of its completion."),
	}
}

func (l *latency) captured(d time.Duration)  { l.toCaptured.Observe(d.Seconds()) }
func (l *latency) notified(d time.Duration)  { l.toNotified.Observe(d.Seconds()) }
func (l *latency) fulfilled(d time.Duration) { l.toFulfilled.Observe(d.Seconds()) }
