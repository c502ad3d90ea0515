package ops_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// archiveTo appends the ids of events to a file, in one write.
func archiveTo(path string) func(context.Context, []core.ArchivedEvent) error {
	return func(_ context.Context, rows []core.ArchivedEvent) error {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		var text bytes.Buffer
		for _, r := range rows {
			fmt.Fprintln(&text, r.Event.ID)
		}
		_, err = f.Write(text.Bytes())
		return errors.Join(err, f.Close())
	}
}

// runDoomedArchive cleans up. It dies of SIGKILL when the archive has the rows, or while they are
// deleted. It only returns after a mistake.
func runDoomedArchive(repo *sqloutbox.Repository, d doomed) error {
	write := archiveTo(d.Archive)
	die := func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	for {
		n, more, err := repo.Cleanup(context.Background(), core.CleanupRequest{
			Keep: time.Microsecond, KeepDiscarded: time.Microsecond, Limit: 20,
			Archive: func(ctx context.Context, rows []core.ArchivedEvent) error {
				if err := write(ctx, rows); err != nil {
					return err
				}
				if d.Within == 0 {
					die()
					select {}
				}
				time.AfterFunc(d.Within, die)
				return nil
			},
		})
		switch {
		case err != nil:
			return err
		case n == 0 && !more: // nothing is left
			die()
		}
	}
}

// Processes are killed between the archiving of rows and their deletion, and within the deletion.
// After each kill, every row that is gone from the table is in the archive. The next process
// archives the others. In the end no row is left.
func TestKilledArchive(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		const events = 400
		w := newWorld(t, db, core.Config{})
		for i := range events / 20 {
			var some []core.Event
			for n := range 20 {
				some = append(some, core.Event{
					Type: "paid", Topic: "orders", Key: fmt.Sprint(n % 3), Payload: []byte{byte(i)},
				})
			}
			w.Publish(some...)
		}
		w.drain()
		ids := map[string]bool{}
		for _, r := range w.Rows() {
			ids[r.EventID] = true
		}
		path := filepath.Join(t.TempDir(), "archive")
		covered := func() (left int) {
			t.Helper()
			archived, there := map[string]bool{}, map[string]bool{}
			text, _ := os.ReadFile(path)
			for line := range bytes.Lines(text) {
				archived[string(bytes.TrimSpace(line))] = true
			}
			for _, r := range w.Rows() {
				there[r.EventID] = true
			}
			for id := range ids {
				fixture.Must(t, there[id] || archived[id], "event %s is deleted, and not archived", id)
			}
			return len(there)
		}
		self, err := os.Executable()
		fixture.NoError(t, err)
		deleted := 0
		for life := range 12 {
			d := doomed{Dialect: db.Dialect, DSN: db.DSN, Archive: path}
			if life%3 > 0 {
				d.Within = time.Duration(1 + rand.IntN(1_500_000))
			}
			text, err := json.Marshal(d)
			fixture.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			cmd := exec.CommandContext(ctx, self)
			cmd.Env = append(os.Environ(), doomedVariable+"="+string(text))
			out, err := cmd.CombinedOutput()
			cancel()
			var exit *exec.ExitError
			fixture.Must(t, errors.As(err, &exit), "life %d: %v\n%s", life, err, out)
			if s, ok := exit.Sys().(syscall.WaitStatus); !ok || !s.Signaled() || s.Signal() != syscall.SIGKILL {
				t.Fatalf("life %d was not killed: %v\n%s", life, err, out)
			}
			if left := covered(); left < events-deleted {
				deleted = events - left
			}
		}
		t.Logf("%d of %d rows were deleted by processes that were killed", deleted, events)
		for covered() > 0 {
			_, _, err := w.Repository.Cleanup(t.Context(), core.CleanupRequest{
				Keep: time.Microsecond, KeepDiscarded: time.Microsecond, Limit: 100, Archive: archiveTo(path),
			})
			if locked := (*core.LockedError)(nil); err != nil && !errors.As(err, &locked) {
				t.Fatal(err)
			}
		}
	})
}
