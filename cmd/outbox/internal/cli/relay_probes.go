package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/health"
)

// errBegins is why an outbox is not open that has not failed.
var errBegins = errors.New("the relay has not begun yet")

// probes serves requests about the process. It is not ready when ctx has ended.
func (f *fleet) probes(ctx context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(f.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		status, problems := f.live()
		answer(w, status, map[string]any{"status": status, "problems": problems})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		report := health.Report{
			Status: health.Failed, Stopped: []string{}, Problems: []string{"the relay is stopping"},
		}
		if ctx.Err() == nil {
			report = f.report(r.Context())
		}
		answer(w, report.Status, report)
	})
	return mux
}

func answer(w http.ResponseWriter, status string, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if status == health.Failed {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(body) // the prober has gone
}

// live fails if only a restart helps one of the outboxes. Each problem has the name of its outbox.
func (f *fleet) live() (status string, problems []string) {
	status, problems = health.OK, []string{}
	for _, m := range f.current() {
		if ob, _ := m.state(); ob != nil {
			if err := m.wrap(ob.Live()); err != nil {
				status, problems = health.Failed, append(problems, err.Error())
			}
		}
	}
	return status, problems
}

var (
	relayUp = prometheus.NewDesc("outbox_relay_up", "1 while the process relays the outbox, 0 while it cannot.",
		[]string{"outbox"}, nil)
	configRefused = prometheus.NewDesc("outbox_config_refused",
		"1 if the file of outboxes had a mistake at the last SIGHUP: the outboxes are those of before.", nil, nil)
)

// Describe implements prometheus.Collector.
func (f *fleet) Describe(to chan<- *prometheus.Desc) { to <- relayUp; to <- configRefused }

// Collect implements prometheus.Collector.
func (f *fleet) Collect(to chan<- prometheus.Metric) {
	gauge := func(of *prometheus.Desc, on bool, labels ...string) {
		value := 0.0
		if on {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, value, labels...)
	}
	for _, m := range f.current() {
		ob, _ := m.state()
		gauge(relayUp, ob != nil, m.name)
	}
	gauge(configRefused, f.refused.Load() != nil)
}

// report asks all outboxes at once. It fails if none of them works, because the others go on if one
// does not. Each problem has the name of its outbox.
func (f *fleet) report(ctx context.Context) health.Report {
	members := f.current()
	all := make([]core.Health, len(members))
	var asking sync.WaitGroup
	for i, m := range members {
		asking.Go(func() {
			ob, err := m.state()
			if ob == nil {
				all[i] = core.Health{Problems: []string{err.Error()}}
				return
			}
			all[i] = ob.Health(ctx)
			for k, text := range all[i].Problems {
				all[i].Problems[k] = m.wrap(errors.New(text)).Error()
			}
		})
	}
	asking.Wait()
	r := health.Report{Status: health.Failed, Relaying: true, Stopped: []string{}, Problems: []string{}}
	if err := f.refused.Load(); err != nil {
		r.Problems = append(r.Problems, (*err).Error())
	}
	for _, h := range all {
		if h.Live && h.Ready {
			r.Status = health.OK
		}
		r.Relaying = r.Relaying && h.Relaying
		r.RelayedByLog = r.RelayedByLog || h.RelayedByLog
		r.TurnedMS = max(r.TurnedMS, h.Turned.Milliseconds())
		r.Stuck += h.Stuck
		r.Stopped, r.Problems = append(r.Stopped, h.Stopped...), append(r.Problems, h.Problems...)
	}
	if r.Status == health.OK && len(r.Problems) > 0 {
		r.Status = health.Degraded
	}
	return r
}

// state returns the outbox, or nil and why it is not open.
func (m *member) state() (*core.Outbox, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.outbox != nil:
		return m.outbox, nil
	case m.failed != nil:
		return nil, m.failed
	}
	return nil, m.wrap(errBegins)
}
