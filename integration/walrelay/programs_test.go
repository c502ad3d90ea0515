package walrelay_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
)

// spy keeps what several goroutines log.
type spy struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *spy) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *spy) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.buf.String(), text)
}

// Another program that reads the slot is told when Run begins: to the reader, and to one that stands
// by. A program that has not read it for a week is forgotten.
func TestAnotherProgramReadsTheSlot(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db)
		start := func() (log *spy, stop func()) {
			log = &spy{}
			cfg := w.config()
			cfg.Outbox.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo}))
			return log, w.run(cfg)
		}
		reads := func(log *spy) func() bool {
			return func() bool { return log.count("this process reads the slot") == 1 }
		}
		others := func(ago string) {
			fixture.MustExec(t, w.service.Pool, "UPDATE outbox_log SET programs = programs || "+
				"jsonb_build_object('example.com/other', now() - interval '"+ago+"')")
		}
		log, stop := start()
		fixture.Await(t, "the slot is read", reads(log))
		w.publish("a", 1, 3)
		w.await(3)
		stop()
		mine := fixture.Count(t, w.service.Pool, "SELECT count(*) FROM outbox_log, jsonb_object_keys(programs)")
		fixture.Check(t, mine == 1 && log.count("another program") == 0, "%d programs are registered", mine)

		others("8 days")
		log, stop = start()
		fixture.Await(t, "the slot is read", reads(log))
		w.publish("a", 4, 4)
		w.await(4)
		stop()
		fixture.Check(t, log.count("another program") == 0, "a program of last week is told")

		others("1 hour")
		log, _ = start()
		told := func(log *spy) func() bool {
			return func() bool { return log.count("other_program=example.com/other") == 1 }
		}
		fixture.Await(t, "the reader is told", told(log))
		fixture.Await(t, "the slot is read", reads(log))
		second, _ := start()
		fixture.Await(t, "the one that stands by is told", told(second))
		fixture.Check(t, second.count("stands by") == 1, "the second relay does not stand by")
	})
}

// A table of an earlier version has no column for programs. Its relay runs all the same.
func TestATableWithoutPrograms(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		fixture.MustExec(t, w.service.Pool, "ALTER TABLE outbox_log DROP COLUMN programs")
		w.run(walrelay.Config{
			Pool: w.pool, Slot: w.slot, Outbox: w.config().Outbox,
		})
		w.publish("a", 1, 3)
		w.await(3)
	})
}
