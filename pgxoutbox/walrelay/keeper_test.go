package walrelay

import (
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// While the position cannot be written down, the session leaves now and then, and publishes
// between.
func TestKeeperLeaves(t *testing.T) {
	// nobody listens there
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/x?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	k := keeper{session: &session{
		Relay:  &Relay{db: newDatabase(pool, "", "outbox_"), log: slog.New(slog.DiscardHandler)},
		window: newWindow(1, 1, nil),
	}}
	leaves := 0
	begin := time.Now()
	for at := time.Duration(0); at < 3*leaveAfter; at += tick {
		if err := k.turn(t.Context(), begin.Add(at)); err != nil {
			t.Fatal(err)
		}
		if k.leave.Swap(false) {
			leaves++
		}
	}
	if leaves != 2 {
		t.Errorf("the session left %d times in %s", leaves, 3*leaveAfter)
	}
}
