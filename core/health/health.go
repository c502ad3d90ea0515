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

	"github.com/ormoutbox/ormoutbox/core"
)

// Values of Report.Status.
const (
	OK       = "ok"
	Degraded = "degraded" // 200: the process works, and Report.Problems says what does not
	Failed   = "failed"   // 503
)

// Report is the body of an answer. Its fields are those of core.Health.
type Report struct {
	Status   string   `json:"status"` // OK, Degraded or Failed
	Relaying bool     `json:"relaying"`
	TurnedMS int64    `json:"turned_ms"` // milliseconds since the loop of Run turned
	Stopped  []string `json:"stopped"`
	Stuck    int      `json:"stuck"`
	Problems []string `json:"problems"`
}

// Live is the handler of a liveness probe. It answers with 503 if only a restart helps, see
// core.Outbox.Live. It does not use the database. Of the Report it fills in Status and Problems.
func Live(ob *core.Outbox) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		report := Report{Status: OK}
		if err := ob.Live(); err != nil {
			report.Status, report.Problems = Failed, []string{err.Error()}
		}
		report.write(w)
	})
}

// Ready is the handler of a readiness probe. It answers with 503 if the database does not answer,
// accepts no writes or lacks tables, and if the process is not live. A destination that is stopped
// does not make the process unready. Probes within one second share one question to the database.
func Ready(ob *core.Outbox) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h := ob.Health(req.Context())
		report := Report{
			Status: OK, Relaying: h.Relaying, TurnedMS: h.Turned.Milliseconds(), Stopped: h.Stopped, Stuck: h.Stuck,
			Problems: h.Problems,
		}
		switch {
		case !h.Live || !h.Ready:
			report.Status = Failed
		case h.Degraded():
			report.Status = Degraded
		}
		report.write(w)
	})
}

// write sends the report. Lists are never null.
func (r Report) write(w http.ResponseWriter) {
	r.Stopped, r.Problems = append([]string{}, r.Stopped...), append([]string{}, r.Problems...)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if r.Status == Failed {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(r) // the prober has gone
}
