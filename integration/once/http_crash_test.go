package once_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

const httpKeyChild = "OUTBOX_HTTPKEY_CHILD"

// With httpKeyChild set, the test binary runs as a process that dies in its first request.
func init() {
	if os.Getenv(httpKeyChild) == "" {
		return
	}
	db := testdb.DB{Dialect: core.Dialect(os.Getenv("HTTPKEY_DIALECT")), DSN: os.Getenv("HTTPKEY_DSN")}
	var die testing.B // a testing.TB for a process that runs no tests
	p := &httpPayments{db: db, pool: sql.OpenDB(db.Connector(&die)), tx: os.Getenv(httpKeyChild) == "tx"}
	p.handler = func(w http.ResponseWriter, r *http.Request) {
		p.pay(w, r)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	w := payBy(p.server(&die, shortLease), "k1", "42")
	fmt.Println("still alive:", w.Code, w.Body)
	os.Exit(1)
}

func shortLease(c *httpkey.Config) {
	c.Keys.Lease, c.Keys.StoreTimeout, c.Keys.Wait = 5*time.Second, 4*time.Second, time.Minute
}

// A process is killed with SIGKILL when its handler has done its work. In the transaction form that
// work is rolled back and the key is free, so the payment is made once. In the lease form the key
// is held until the lease ends. Then the work is done again: at least once, as documented.
func TestHTTPKeyCrash(t *testing.T) {
	t.Parallel()
	eachHTTPPayments(t, func(t *testing.T, p *httpPayments) {
		self, err := os.Executable()
		fixture.NoError(t, err)
		form := "lease"
		if p.tx {
			form = "tx"
		}
		child := exec.CommandContext(t.Context(), self)
		child.Env = append(os.Environ(), httpKeyChild+"="+form, "HTTPKEY_DIALECT="+string(p.db.Dialect), "HTTPKEY_DSN="+
			p.db.DSN)
		out, err := child.CombinedOutput()
		if s, ok := child.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
			t.Fatalf("the child ended by itself: %v\n%s", err, out)
		}
		payments := 2
		if p.tx {
			payments = 1
		}
		h := p.server(t, shortLease)
		p.runs.Store(1) // the run of the child
		wantPaid(t, payBy(h, "k1", "42"), http.StatusCreated, "run 2", false)
		wantPaid(t, payBy(h, "k1", "42"), http.StatusCreated, "run 2", true)
		p.wantPayments(t, payments)
	})
}
