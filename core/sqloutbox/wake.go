package sqloutbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// WakeChannel returns the channel of PostgreSQL on which processes without a relay notify relays:
// the prefix of the tables, and "wake". An empty prefix stands for DefaultPrefix. A process in
// another language may send NOTIFY on it too, after the commit of its rows.
func WakeChannel(prefix string) string {
	prefix = cmp.Or(prefix, DefaultPrefix)
	return prefix + "wake"
}

// waker connects the commits of processes: notify announces, listen receives.
type waker interface {
	notify(ctx context.Context) error
	listen(ctx context.Context, wake func()) error
}

func newWaker(p pool, n names) waker {
	of := outboxsql.ByDialect[func(pool, names) waker]{
		Postgres: newPostgresWaker, MySQL: newBell, SQLite: newFileVersion,
	}
	return of.Of(n.dialect)(p, n)
}

// A probe follows another after a fiftieth of the time in which nothing happened. So probes are
// frequent while there is traffic, and rare without. They take at most a tenth of the time.
const (
	quietShare = 50
	probeShare = 10
)

// pace is when to probe.
type pace struct {
	shortest, longest time.Duration
	// lone: a change long after the last one does not make the probes frequent, only the next one does.
	lone bool
}

var (
	// A round trip, and a look-up by primary key.
	bellPace = pace{shortest: 2 * time.Millisecond, longest: 500 * time.Millisecond}
	// Some microseconds, and ten times as much to wake this process for it. The heartbeats of relays
	// change the file too.
	filePace = pace{shortest: 2 * time.Millisecond, longest: 50 * time.Millisecond, lone: true}
)

// next returns the pause until the next probe.
func (p pace) next(quiet, took time.Duration) time.Duration {
	return min(max(quiet/quietShare, probeShare*took, p.shortest), p.longest)
}

// watch calls wake at the start, and whenever probe returns another number than before.
func (p pace) watch(ctx context.Context, probe func() (int64, error), wake func()) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last int64
	var changed time.Time // zero: nothing was read yet
	var gap time.Duration // between the last two changes
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		start := time.Now()
		n, err := probe()
		if err != nil {
			return err
		}
		now := time.Now()
		if n != last || changed.IsZero() {
			if p.lone && !changed.IsZero() {
				gap = now.Sub(changed)
			}
			last, changed = n, now
			wake()
		}
		timer.Reset(p.next(max(now.Sub(changed), gap), now.Sub(start)))
	}
}

// postgresWaker sends NOTIFY. Inside the transactions of the producers it would make their commits
// wait for each other, because it holds a lock of the whole server until the log is on disk.
type postgresWaker struct {
	pool
	text string
}

func newPostgresWaker(p pool, n names) waker {
	return postgresWaker{pool: p, text: "SELECT set_config('synchronous_commit', 'off', true), pg_notify('" +
		WakeChannel(n.prefix) + "', '')"}
}

func (w postgresWaker) notify(ctx context.Context) error { return w.tell(ctx, w.text) }

func (postgresWaker) listen(context.Context, func()) error {
	return fmt.Errorf("sqloutbox: LISTEN needs the driver, give it to WakePolicy.Listen: %w", errors.ErrUnsupported)
}

// tell runs a statement that notifies.
func (p pool) tell(ctx context.Context, text string) error {
	_, err := sqlkit.Change(ctx, p.single, "notify", text)
	return err
}

// bell is a row that Notify counts up, for databases without notifications. It is the row of the
// key table whose lane is 0: no event has it, and the janitor looks at the rows after it only.
type bell struct {
	pool
	ring, read string
}

// bellLane is the lane of the bell in a statement.
const bellLane = "X'00000000000000000000000000000000'"

func newBell(p pool, n names) waker {
	return bell{
		pool: p,
		ring: n.expand("INSERT INTO {key} (lane, last_seq, first_seq, used_at) " +
			"VALUES (" + bellLane + ", 1, 1, {now}) " +
			"ON DUPLICATE KEY UPDATE last_seq = last_seq + 1, used_at = {now}"),
		read: n.expand("SELECT last_seq FROM {key} WHERE lane = " + bellLane),
	}
}

func (b bell) notify(ctx context.Context) error { return b.tell(ctx, b.ring) }

func (b bell) listen(ctx context.Context, wake func()) error {
	return bellPace.watch(ctx, func() (n int64, err error) {
		err = b.single(ctx, "listen", func(q sqlkit.Querier) error {
			_, err := sqlkit.FirstRow(ctx, q, b.read, nil, &n) // no row: it has never rung
			return err
		})
		return n, err
	}, wake)
}

// fileVersion is for SQLite, which has a counter of changes to the file by other connections.
type fileVersion struct{ pool }

func newFileVersion(p pool, _ names) waker { return fileVersion{p} }

// minWatchPool is the smallest limit of a pool of which one connection may be kept for the watch:
// the relay needs three, and the application at least one more than the watch.
const minWatchPool = 4

func (fileVersion) notify(context.Context) error {
	return fmt.Errorf("sqloutbox: relays on SQLite see commits by themselves: %w", errors.ErrUnsupported)
}

func (v fileVersion) listen(ctx context.Context, wake func()) error {
	db := v.runner.(sqlPool).db // SQLite has no other
	if most := db.Stats().MaxOpenConnections; most > 0 && most < minWatchPool {
		return fmt.Errorf("sqloutbox: a pool of %d connections has none to spare for wake-ups: %w", most,
			errors.ErrUnsupported)
	}
	conn, err := db.Conn(ctx) // the number means something on one connection only
	if err != nil {
		return wrap("listen", err)
	}
	defer func() { _ = conn.Close() }()
	// A probe takes microseconds. Watching whether ctx ends meanwhile would cost more.
	probing := context.WithoutCancel(ctx)
	return wrap("listen", filePace.watch(ctx, func() (n int64, err error) {
		err = conn.QueryRowContext(probing, "PRAGMA data_version").Scan(&n)
		return n, err
	}, wake))
}
