package metrics

import (
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
)

// answers are the values of label outcome.
var answers = []httpkey.Answer{
	httpkey.Executed, httpkey.Replayed, httpkey.InFlight, httpkey.Mismatch, httpkey.MissingKey, httpkey.InvalidKey,
	httpkey.MissingScope, httpkey.UnreadableBody, httpkey.BodyTooLarge, httpkey.Abandoned, httpkey.NotKept,
	httpkey.Bypassed, httpkey.StoreError, httpkey.ClientGone,
}

// httpMetrics are those of httpkey.Observer.
type httpMetrics struct {
	routes *series[*routeMetrics]
}

// routeMetrics are the series of one route.
type routeMetrics struct {
	answers map[httpkey.Answer]Counter
	took    Histogram
}

func newHTTPMetrics(m Meter, cfg Config) *httpMetrics {
	requests := counter(m, "idempotency_requests_total", "Requests by their answer, as httpkey.Answer names it.",
		"route", "outcome")
	took := histogram(m, "idempotency_request_duration_seconds",
		"From the arrival of a request to the end of its answer.",
		callBuckets, "route")
	return &httpMetrics{routes: newSeries(cfg.MaxLabels, func(route string) *routeMetrics {
		r := &routeMetrics{answers: map[httpkey.Answer]Counter{}, took: took(route)}
		for _, a := range answers {
			r.answers[a] = requests(route, string(a))
		}
		return r
	})}
}

// HTTP returns the observer of httpkey.Config. Label route is httpkey.Info.Route, never the key.
func (s *Set) HTTP() *httpkey.Observer {
	return &httpkey.Observer{Handled: func(info httpkey.Info) {
		r := s.http.routes.get(info.Route)
		if c, ok := r.answers[info.Answer]; ok {
			c.Add(1)
		}
		r.took.Observe(info.Duration.Seconds())
	}}
}
