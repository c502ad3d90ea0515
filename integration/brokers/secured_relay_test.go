package brokers_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// checkRelay runs `outbox relay` with the address of secured servers. Its events arrive, and it ends
// after SIGTERM.
func checkRelay(t *testing.T, to, topic string, held func(t *testing.T) []heldMessage) {
	t.Helper()
	folder := t.TempDir()
	build := exec.Command("go", "build", "-o", folder, ".")
	build.Dir = filepath.Join(fixture.Root(t), "cmd", "outbox")
	out, err := build.CombinedOutput()
	fixture.Must(t, err == nil, "%v: %s", err, out)
	db := testdb.SQLite(t)
	p := fixture.NewProcess(t, db, core.Config{})
	p.Publish(keyed(topic, 6)...)
	relay := exec.Command(filepath.Join(folder, "outbox"), "relay")
	relay.Env = append(os.Environ(), "DATABASE_URL=sqlite:"+strings.TrimPrefix(db.DSN, "file:"), "OUTBOX_TO="+to,
		"OUTBOX_LISTEN=127.0.0.1:0")
	log, err := os.Create(filepath.Join(folder, "log"))
	fixture.NoError(t, err)
	defer log.Close()
	relay.Stderr = log
	fixture.NoError(t, relay.Start())
	ended := make(chan error, 1)
	go func() { ended <- relay.Wait() }()
	defer func() {
		_ = relay.Process.Kill()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s", text)
		}
	}()
	fixture.AwaitIn(t, time.Minute, "outbox relay publishes", func() bool {
		return !slices.ContainsFunc(p.Rows(), func(r fixture.StoredRow) bool { return r.Status != fixture.StatusDone })
	})
	fixture.NoError(t, relay.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-ended:
		fixture.Check(t, err == nil, "outbox relay ended with %v", err)
	case <-time.After(time.Minute):
		t.Fatal("outbox relay does not end")
	}
	there := held(t)
	for _, row := range p.Rows() {
		fixture.Check(t, row.Attempts == 0, "a row has %d attempts: %s", row.Attempts, row.Error)
		fixture.Check(t, slices.ContainsFunc(there, func(h heldMessage) bool { return h.UUID == row.EventID }),
			"event %s is done and not at the broker", row.EventID)
	}
}

// parameters are the files of a client in the address of a relay.
func (c *certificates) parameters() string {
	return "cacertfile=" + c.file("ca.crt") + "&certfile=" + c.file("client.crt") + "&keyfile=" + c.file("client.key")
}
