package cli

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/health"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// The exit code of a probe is what the relay answers.
func TestProbe(t *testing.T) {
	t.Parallel()
	ob, err := core.New(core.Config{Repository: outboxtest.NewRepository(), Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", health.Live(ob))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"status":"failed","problems":["the relay is stopping"]}`, http.StatusServiceUnavailable)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	address := strings.TrimPrefix(s.URL, "http://")
	w := &world{T: t, env: map[string]string{"OUTBOX_LISTEN": address}}
	w.require(w.run("probe"), ExitOK, "ok")
	_, port, _ := strings.Cut(address, ":")
	for _, listen := range []string{":" + port, "0.0.0.0:" + port, "[::]:" + port} {
		w.require(w.run("probe", "--listen", listen), ExitOK, "ok")
	}
	w.require(w.run("probe", "--ready"), ExitUnhealthy, "the relay is stopping", "503")
	var report health.Report
	if code := w.json(&report, "probe", "--ready"); code != ExitUnhealthy || report.Status != health.Failed {
		t.Errorf("exit code %d, %+v", code, report)
	}
	w.env["OUTBOX_LISTEN"] = "127.0.0.1:1" // no server listens there
	w.require(w.run("probe"), ExitUnhealthy, "does not answer")
	w.env["OUTBOX_LISTEN"] = ""
	w.require(w.run("probe"), ExitUsage, "--listen")
}
