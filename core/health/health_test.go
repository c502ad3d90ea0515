package health_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/health"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// tables are those of a test: they differ from what they should be.
type tables struct {
	*outboxtest.Repository
	err error
}

func (t tables) Check(context.Context) error { return t.err }

func TestHandlers(t *testing.T) {
	differ := fmt.Errorf("%w: index x", core.ErrTablesDiffer)
	missing := fmt.Errorf("%w: table x", core.ErrNoTables)
	for _, c := range []struct {
		name        string
		err         error
		run         bool
		live, ready int
		report      health.Report
	}{
		{"healthy", nil, false, 200, 200, health.Report{Status: health.OK}},
		{
			"degraded", differ, false, 200, 200,
			health.Report{Status: health.Degraded, Problems: []string{differ.Error()}},
		},
		{"unready", errors.New("down"), false, 200, 503, health.Report{
			Status: health.Failed, Problems: []string{"outbox: the database: down"},
		}},
		{"dead", missing, true, 503, 503, health.Report{Status: health.Failed, Problems: []string{
			"outbox: Run has ended: " + missing.Error(), "outbox: the database: " + missing.Error(),
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ob, err := core.New(core.Config{
				Repository: tables{
					outboxtest.NewRepository(),
					c.err,
				},
				Publisher: &outboxtest.Publisher{},
				Relay:     relay.Config{},
				Logger:    slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			if c.run {
				if err := ob.Run(t.Context()); !errors.Is(err, c.err) {
					t.Fatal(err)
				}
			}
			if code, _ := ask(t, health.Live(ob)); code != c.live {
				t.Errorf("live: %d, want %d", code, c.live)
			}
			code, report := ask(t, health.Ready(ob))
			c.report.Stopped, c.report.Problems = []string{}, append([]string{}, c.report.Problems...)
			if code != c.ready || !reflect.DeepEqual(report, c.report) {
				t.Errorf("ready: %d %+v, want %d %+v", code, report, c.ready, c.report)
			}
		})
	}
}

func ask(t *testing.T, h http.Handler) (code int, report health.Report) {
	t.Helper()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if got := rec.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("content type %q", got)
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	return rec.Code, report
}

// The probes of a process, on a port that only the platform reaches.
func Example() {
	ob, err := core.New(core.Config{Repository: outboxtest.NewRepository()})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("GET /livez", health.Live(ob))
	mux.Handle("GET /readyz", health.Ready(ob))

	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	fmt.Println(rec.Code, rec.Body)
	// Output: 200 {"status":"ok","relaying":false,"turned_ms":0,"stopped":[],"stuck":0,"problems":[]}
}

// A process with several outboxes is as well as the worst of them.
func TestSeveralOutboxes(t *testing.T) {
	open := func(err error) *core.Outbox {
		ob, oerr := core.New(core.Config{
			Repository: tables{outboxtest.NewRepository(), err}, Logger: slog.New(slog.DiscardHandler),
		})
		if oerr != nil {
			t.Fatal(oerr)
		}
		return ob
	}
	differ := fmt.Errorf("%w: index x", core.ErrTablesDiffer)
	well, ill, down := open(nil), open(differ), open(errors.New("down"))
	for _, c := range []struct {
		outboxes []*core.Outbox
		code     int
		status   string
		problems int
	}{
		{[]*core.Outbox{well, well}, 200, health.OK, 0},
		{[]*core.Outbox{ill, well}, 200, health.Degraded, 1},
		{[]*core.Outbox{well, down, ill}, 503, health.Failed, 2},
	} {
		code, report := ask(t, health.Ready(c.outboxes...))
		if code != c.code || report.Status != c.status || len(report.Problems) != c.problems {
			t.Errorf("%d %+v, want %+v", code, report, c)
		}
		if code, _ := ask(t, health.Live(c.outboxes...)); code != 200 {
			t.Errorf("live: %d", code)
		}
	}
}
