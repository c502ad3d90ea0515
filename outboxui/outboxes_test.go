package outboxui

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// hanging is a table whose database does not answer.
type hanging struct{ *outboxtest.Repository }

func (hanging) ScanEvents(ctx context.Context, _ ops.Scan) (ops.Scanned, error) {
	<-ctx.Done()
	return ops.Scanned{}, ctx.Err()
}

// A database that hangs holds up no page of another outbox for long, and only one visit.
func TestAnOutboxHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ob := outboxtest.NewOutbox(t, coreConfig())
		api, err := ops.New(ob.Outbox, hanging{ob.Repository})
		must(t, err)
		w := newWorld(t, Config{Outboxes: []Outbox{{Name: "other", API: api, Database: "SQLite, other.db"}}})
		defer func() { must(t, w.page.Close()) }()
		get := func(path string) (time.Duration, string) {
			t.Helper()
			began, res := time.Now(), httptest.NewRecorder()
			w.page.ServeHTTP(res, httptest.NewRequest(http.MethodGet, path, nil))
			return time.Since(began), res.Body.String()
		}
		for _, path := range []string{"/shop/groups", "/nonsense"} {
			took := make(chan time.Duration, 2)
			for range 2 {
				go func() {
					d, body := get(path)
					if path == "/shop/groups" && !strings.Contains(body, "nothing has failed") &&
						!strings.Contains(body, "No event has failed") {
						t.Errorf("%s: %s", path, body)
					}
					took <- d
				}()
			}
			if a, b := <-took, <-took; min(a, b) != 0 || max(a, b) > summaryWait {
				t.Errorf("%s took %s and %s", path, a, b)
			}
		}
		if _, body := get("/shop/groups"); !strings.Contains(body, "not known") {
			t.Error("the list of outboxes does not say that the other one is not known")
		}
	})
}

// An outbox that a person may not see is not named to that person.
func TestOutboxesThatAreNotShown(t *testing.T) {
	ob := outboxtest.NewOutbox(t, coreConfig())
	api, err := ops.New(ob.Outbox, ob.Repository)
	must(t, err)
	w := newWorld(t, Config{
		Outboxes: []Outbox{{Name: "payroll", API: api, Database: "SQLite, payroll.db"}},
		Authorize: func(r *http.Request) (string, Rights, error) {
			if strings.HasPrefix(r.URL.Path, "/payroll/") {
				return "", 0, errors.New("not for ada")
			}
			return "ada", See, nil
		},
	})
	res := httptest.NewRecorder()
	w.page.ServeHTTP(res, httptest.NewRequest(http.MethodGet, "/shop/groups", nil))
	if body := res.Body.String(); res.Code != http.StatusOK || strings.Contains(body, "payroll") {
		t.Errorf("%d %s", res.Code, body)
	}
}

// An id may have a slash.
func TestIDWithASlash(t *testing.T) {
	w := newWorld(t, Config{})
	res := httptest.NewRecorder()
	w.page.ServeHTTP(res, httptest.NewRequest(http.MethodGet, "/shop/events/"+url.PathEscape("a/../b"), nil))
	if body := res.Body.String(); res.Code != http.StatusBadRequest || strings.Contains(body, "no such page") {
		t.Errorf("%d %s", res.Code, body)
	}
}
