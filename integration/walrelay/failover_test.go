package walrelay_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
)

// standby is a physical standby of a private PostgreSQL 18.
type standby struct {
	*testing.T
	port int
	pool *sql.DB
}

// programs returns the folder with the programs of PostgreSQL 18.
func programs(t *testing.T) string {
	t.Helper()
	lib := os.Getenv("SERVICES_LIB")
	if lib == "" {
		dir := os.Getenv("SERVICES_DIR")
		if dir == "" {
			dir = filepath.Join(fixture.Root(t), ".services")
		}
		lib = filepath.Join(dir, "lib")
	}
	const below = "usr/lib/postgresql/18/bin"
	for _, dir := range []string{filepath.Join(lib, "postgres18-sid", below), filepath.Join("/", below)} {
		if _, err := os.Stat(filepath.Join(dir, "pg_basebackup")); err == nil {
			return dir
		}
	}
	t.Fatalf("pg_basebackup and postgres of PostgreSQL 18 are neither in %s nor in /%s: a server that Docker runs "+
		"does not bring them. On Debian SERVICES_WITH=packages, set for this test, has them unpacked; elsewhere "+
		"install postgresql-18", lib, below)
	return ""
}

// asPostgres runs a program as scripts/services does, because PostgreSQL refuses to run as root.
func asPostgres(name string, args ...string) *exec.Cmd {
	if os.Geteuid() != 0 {
		return exec.Command(name, args...)
	}
	as := "nobody"
	if _, err := user.Lookup("postgres"); err == nil {
		as = "postgres"
	}
	u, err := user.Lookup(as)
	if err != nil {
		return exec.Command(name, args...)
	}
	return exec.Command("unshare", append([]string{
		"--user", "--map-user=" + u.Uid, "--map-group=" + u.Gid, "--kill-child", "--fork", name,
	}, args...)...)
}

// startPair starts a server and its standby. The service and the relay of the world know both, and use
// the one that can be written to.
func startPair(t *testing.T) (server *fixture.PrivateServer, second *standby, w *world) {
	t.Helper()
	server = fixture.StartPrivate(t, "postgres18")
	at, err := url.Parse(server.Address)
	fixture.NoError(t, err)
	second = startStandby(t, at)
	db := testdb.DB{Name: "postgres18", Dialect: core.Postgres}
	db.DSN = fmt.Sprintf("postgres://postgres@%s,127.0.0.1:%d%s?sslmode=disable&connect_timeout=5"+
		"&target_session_attrs=read-write", at.Host, second.port, at.Path)
	return server, second, newWorld(t, db)
}

// startStandby copies a server and starts the copy, which follows it.
func startStandby(t *testing.T, primary *url.URL) *standby {
	t.Helper()
	bin, data := programs(t), filepath.Join(t.TempDir(), "standby")
	port, locks := fixture.ReservePorts(t)
	for _, l := range locks {
		t.Cleanup(func() { _ = l.Close() })
	}
	out, err := asPostgres(filepath.Join(bin, "pg_basebackup"), "-D", data, "-d",
		fmt.Sprintf("host=%s port=%s user=postgres dbname=outbox", primary.Hostname(), primary.Port()),
		"-X", "stream", "-R", "-S", "standby", "-C", "--checkpoint=fast", "--no-sync").CombinedOutput()
	fixture.Must(t, err == nil, "pg_basebackup: %v\n%s", err, out)
	s := &standby{T: t, port: port}
	server := asPostgres(filepath.Join(bin, "postgres"), "-D", data, "-h", "127.0.0.1", "-p", fmt.Sprint(port),
		"-c", "unix_socket_directories=", "-c", "max_connections=1000", "-c", "wal_level=logical", "-c",
		"max_replication_slots=32", "-c", "max_wal_senders=32", "-c", "fsync=off", "-c", "hot_standby_feedback=on",
		"-c", "sync_replication_slots=on", "-c", "wal_receiver_status_interval=100ms")
	var log bytes.Buffer
	server.Stdout, server.Stderr = &log, &log
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	fixture.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-server.Process.Pid, syscall.SIGKILL)
		_ = server.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	s.pool, err = sql.Open("pgx", fmt.Sprintf("postgres://postgres@127.0.0.1:%d/outbox?sslmode=disable", port))
	fixture.NoError(t, err)
	t.Cleanup(func() { _ = s.pool.Close() })
	fixture.Await(t, "the standby answers", func() bool { return s.pool.PingContext(t.Context()) == nil })
	return s
}

func (s *standby) text(query string, args ...any) (v string) {
	s.Helper()
	fixture.NoError(s.T, s.pool.QueryRowContext(context.Background(), query, args...).Scan(&v))
	return v
}

// The server fails, and its standby takes over. With a failover slot, the relay goes on reading
// there. Otherwise the standby lacks the slot, and the relay repairs it. No event is lost either
// way.
func TestFailover(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	for _, follows := range []bool{true, false} {
		t.Run(fmt.Sprintf("slot follows %v", follows), func(t *testing.T) {
			server, second, w := startPair(t)
			fixture.MustExec(t, w.service.Pool, "ALTER SYSTEM SET synchronized_standby_slots = 'standby'")
			fixture.MustExec(t, w.service.Pool, "SELECT pg_reload_conf()")
			cfg := w.quick()
			cfg.Failover = follows
			relay := w.relay(cfg)
			fixture.NoError(t, relay.Setup(t.Context()))
			fixture.RunRelay(w, relay)
			w.publish("a", 1, 10)
			w.await(10)
			w.awaitCheckpoint(relay)
			if follows {
				fixture.Await(t, "the standby has the slot", func() bool {
					return second.text("SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = $1 "+
						"AND synced AND "+
						"NOT temporary", w.slot) == "1"
				})
			}
			standbys := walrelay.Standbys(t.Context(), w.pool.Config().ConnConfig, w.slot)
			fixture.Must(t, len(standbys) == 1 && (standbys[0].Unready == "") == follows, "standbys: %+v", standbys)
			w.pub.Block()
			w.publish("a", 11, 20)
			w.publish("b", 1, 10)
			end := w.lsn("SELECT pg_current_wal_lsn()::text").String()
			fixture.Await(t, "the standby has all rows", func() bool {
				return second.text("SELECT (pg_last_wal_replay_lsn() >= $1::pg_lsn)::text", end) == "true"
			})
			server.Kill(t)
			fixture.Must(t, second.text("SELECT pg_promote()::text") == "true", "the standby is not promoted")
			w.pub.Unblock()
			fixture.AwaitIn(t, 2*time.Minute, "the service can write again", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err := w.service.Pool.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS alive (i int)")
				return err == nil
			})
			w.publish("a", 21, 30)
			fixture.AwaitIn(t, 2*time.Minute, "all events are there", func() bool {
				return w.last("a") == "30" && w.last("b") == "10"
			})
			w.wantRepeats("a", 30)
			w.wantRepeats("b", 10)
			fixture.Await(t, "the slot is read", func() bool {
				s, err := relay.Status(t.Context())
				return err == nil && s.Leading && s.Active && !s.Repairing && s.Failover == follows
			})
			if got := strings.Count(second.text("SELECT string_agg(slot_name, ' ') "+
				"FROM pg_replication_slots"), w.slot); got != 1 {
				t.Errorf("%d slots", got)
			}
		})
	}
}

// The server fails before its standby has the newest commits, and the standby takes over. The relay has
// read events that are gone, and its positions in the log are those of other events now. It publishes
// all events of the new primary, whether it had published those that are gone
// (synchronized_standby_slots is not set) or not.
func TestFailoverThatLosesCommits(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	for _, waits := range []bool{true, false} {
		t.Run(fmt.Sprintf("waits for the standby %v", waits), func(t *testing.T) {
			server, second, w := startPair(t)
			if waits {
				fixture.MustExec(t, w.service.Pool, "ALTER SYSTEM SET synchronized_standby_slots = 'standby'")
				fixture.MustExec(t, w.service.Pool, "SELECT pg_reload_conf()")
			}
			cfg := w.config()
			cfg.Failover = true
			// The row of the slot is written after the newest events, so the standby lacks it.
			cfg.ConfirmEvery, cfg.CheckpointEvery = time.Second, time.Second
			relay := w.relay(cfg)
			fixture.NoError(t, relay.Setup(t.Context()))
			fixture.RunRelay(w, relay)
			w.publish("a", 1, 10)
			w.await(10)
			fixture.AwaitIn(t, 3*time.Minute, "the standby is ready", func() bool {
				all := walrelay.Standbys(t.Context(), w.pool.Config().ConnConfig, w.slot)
				return len(all) == 1 && all[0].Unready == ""
			})
			var pid int
			fixture.NoError(t, w.service.Pool.QueryRowContext(t.Context(),
				"SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'standby'").Scan(&pid))
			published := make(chan struct{})
			go func() {
				defer close(published)
				w.publish("lost", 1, 200)
			}()
			w.await(60)
			fixture.NoError(t, syscall.Kill(pid, syscall.SIGSTOP)) // the process that sends the log
			<-published
			if !waits {
				w.awaitLast("lost", 200)
			} else {
				fixture.AwaitIn(t, 2*time.Minute, "the standby's slot is further than its row", func() bool {
					return second.text("SELECT (confirmed < (SELECT confirmed_flush_lsn FROM pg_replication_slots s "+
						"WHERE s.slot_name = l.slot))::text FROM outbox_log l") == "true"
				})
			}
			server.Kill(t)
			fixture.Must(t, second.text("SELECT pg_promote()::text") == "true", "the standby is not promoted")
			fixture.AwaitIn(t, 2*time.Minute, "the service can write again", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err := w.service.Pool.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS alive (i int)")
				return err == nil
			})
			gone := second.text("SELECT (200 - count(*))::text FROM outbox_event WHERE partition_key = 'lost'")
			fixture.Must(t, gone != "0", "no commit is gone")
			w.publish("a", 11, 40)
			fixture.AwaitIn(t, 2*time.Minute, "all events of the new primary are there", func() bool {
				return w.last("a") == "40"
			})
			w.wantRepeats("a", 40)
		})
	}
}

// The server holds events back while a standby of synchronized_standby_slots is away. The relay logs
// it, and neither repairs nor repeats anything.
func TestEventsWaitForTheStandby(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	_, db := fixture.StartPrivateDatabase(t, "postgres18")
	w, log := newWorld(t, db), &spy{}
	fixture.MustExec(t, w.service.Pool, "SELECT pg_create_physical_replication_slot('away', true)")
	fixture.MustExec(t, w.service.Pool, "ALTER SYSTEM SET synchronized_standby_slots = 'away'")
	fixture.MustExec(t, w.service.Pool, "SELECT pg_reload_conf()")
	cfg := w.quick()
	cfg.Failover = true
	cfg.Outbox.Logger = slog.New(slog.NewTextHandler(log, nil))
	relay := w.relay(cfg)
	fixture.NoError(t, relay.Setup(t.Context()))
	fixture.RunRelay(w, relay)
	w.publish("a", 1, 10)
	fixture.Await(t, "the relay tells it", func() bool { return log.count("the server holds events back") == 1 })
	w.publish("a", 11, 20)
	fixture.Check(t, len(w.copies("a")) == 0, "%d events were not held back", len(w.copies("a")))
	fixture.MustExec(t, w.service.Pool, "ALTER SYSTEM RESET synchronized_standby_slots")
	fixture.MustExec(t, w.service.Pool, "SELECT pg_reload_conf()")
	w.await(20)
	w.wantRepeats("a", 20)
	copies := len(w.copies("a"))
	fixture.Check(t, copies == 20 && log.count("made again") == 0, "%d copies: %s", copies, &log.buf)
}
