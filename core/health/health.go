// Package health has the HTTP handlers for the probes of a process with an outbox:
//
//	mux.Handle("GET /livez", health.Live(ob))
//	mux.Handle("GET /readyz", health.Ready(ob))
//
// Both answer with 200 or 503, and with a Report as JSON. Its problems may name tables and
// destinations, so serve them on a port that only the platform reaches.
package health

import (
	"encoding/json"
	"net/http"
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
)

// Values of Report.Status.
const (
	OK       = "ok"
	Degraded = "degraded" // 200: the process works, with Report.Problems
	Failed   = "failed"   // 503
)

// Report is the body of an answer. Its fields have the same meaning as core.Health's.
type Report struct {
	Status   string `json:"status"` // OK, Degraded or Failed
	Relaying bool   `json:"relaying"`
	// RelayedByLog: a program that reads the database's log publishes the events of an outbox.
	RelayedByLog bool     `json:"relayed_by_log,omitempty"`
	TurnedMS     int64    `json:"turned_ms"` // milliseconds since the loop of Run turned
	Stopped      []string `json:"stopped"`
	Stuck        int      `json:"stuck"`
	Problems     []string `json:"problems"`
}

// Live is the handler of a liveness probe. It answers with 503 if only a restart helps, see
// core.Outbox.Live. It does not use the database. Of the Report, the answer has Status and Problems
// alone. A process with several outboxes is as well as the worst of them.
func Live(outboxes ...*core.Outbox) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		report := Report{Status: OK}
		for _, ob := range outboxes {
			if err := ob.Live(); err != nil {
				report.Status, report.Problems = Failed, append(report.Problems, err.Error())
			}
		}
		write(w, report.Status, struct {
			Status   string   `json:"status"`
			Problems []string `json:"problems"`
		}{report.Status, append([]string{}, report.Problems...)})
	})
}

// Ready is the handler of a readiness probe. It answers with 503 if the database does not answer,
// is a standby or lacks tables (see core.Health.Ready), and if the process is not live. A
// destination that is stopped does not make the process unready. Probes within one second share one
// question to the database.
//
// Several outboxes are asked at once. The answer combines them: Relaying is true if all of them
// relay, TurnedMS is the largest, Stuck is the sum, and the lists have all.
func Ready(outboxes ...*core.Outbox) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		all := make([]core.Health, len(outboxes))
		var wg sync.WaitGroup
		for i, ob := range outboxes {
			wg.Go(func() { all[i] = ob.Health(req.Context()) })
		}
		wg.Wait()
		report := Report{Status: OK, Relaying: len(all) > 0}
		for _, h := range all {
			report.add(h)
		}
		report.write(w)
	})
}

func (r *Report) add(h core.Health) {
	switch {
	case !h.Live || !h.Ready:
		r.Status = Failed
	case h.Degraded() && r.Status == OK:
		r.Status = Degraded
	}
	r.Relaying = r.Relaying && h.Relaying
	r.RelayedByLog = r.RelayedByLog || h.RelayedByLog
	r.TurnedMS = max(r.TurnedMS, h.Turned.Milliseconds())
	r.Stopped, r.Problems = append(r.Stopped, h.Stopped...), append(r.Problems, h.Problems...)
	r.Stuck += h.Stuck
}

// write sends the report. Lists are never null.
func (r Report) write(w http.ResponseWriter) {
	r.Stopped, r.Problems = append([]string{}, r.Stopped...), append([]string{}, r.Problems...)
	write(w, r.Status, r)
}

func write(w http.ResponseWriter, status string, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if status == Failed {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(body) // the prober has gone
}
