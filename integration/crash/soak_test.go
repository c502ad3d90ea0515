package crash_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/crash"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

var (
	soakFor  = flag.Duration("soak", 10*time.Second, "how long TestSoak runs")
	soakSeed = flag.Uint64("soak.seed", 0, "seed of the moments of its kills; 0: a random one")
)

// Several processes write, relay and consume for a long time, and all but some are killed at random
// moments and started again. The broker loses every tenth answer, and is full for as long as a
// consumer is far behind. No event is lost, no other event is published, first copies stay in
// order, and each consumer handles each event once. What the processes and the tables use does not
// grow. SQLite has one process at a time: on one file it is killed, on another one it is not.
func TestSoak(t *testing.T) {
	longtest.Mark(t)
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		for _, n := range map[core.Dialect][]struct{ victims, steady int }{
			core.Postgres: {{2, 2}}, core.MySQL: {{2, 1}}, core.SQLite: {{1, 0}, {0, 1}},
		}[db.Dialect] {
			t.Run(fmt.Sprintf("%d killed %d not", n.victims, n.steady), func(t *testing.T) {
				t.Parallel()
				s := newSoak(t, db, *soakFor, n.victims, n.steady)
				t.Logf("seed %d", s.seed)
				v, err := s.run(t.Context())
				if err != nil {
					t.Error(err)
				}
				t.Log(crash.Table([]crash.Verdict{v}) + crash.Counts(v))
				for _, what := range slices.Sorted(maps.Keys(s.series)) {
					first, last := thirds(s.series[what])
					t.Logf("flat: %s: %s: %.5g, then %.5g", s.name, what, first, last)
				}
			})
		}
	})
}

// The soak notices processes that leak, and consumers that handle copies.
func TestSoakNoticesMutants(t *testing.T) {
	longtest.Mark(t)
	for mutant, want := range map[crash.Mutant]string{
		crash.Leak: "heap of steady-0, MB grow", crash.NoInbox: "not one effect of each",
	} {
		t.Run(string(mutant), func(t *testing.T) {
			t.Parallel()
			s := newSoak(t, testdb.Postgres(t), 6*time.Second, 1, 1)
			s.spec.Mutant, s.spec.Pause = mutant, time.Millisecond
			if _, err := s.run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

// soak is a cell with processes that run side by side.
type soak struct {
	cell
	lasts           time.Duration
	victims, steady int
	pool            *sql.DB

	mu     sync.Mutex
	lives  []string
	series map[string][]float64
}

func newSoak(t *testing.T, db testdb.DB, lasts time.Duration, victims, steady int) *soak {
	t.Helper()
	s := &soak{cell: newCell(t, db, crash.Never, 0), lasts: lasts, victims: victims, steady: steady}
	s.series = map[string][]float64{}
	var consumers []string
	for i := range victims {
		consumers = append(consumers, fmt.Sprint("victim-", i))
	}
	for i := range steady {
		consumers = append(consumers, fmt.Sprint("steady-", i))
	}
	var copies atomic.Int64
	ledger, err := crash.NewLedger(func(crash.Message) crash.Answer {
		switch {
		case s.ledger.Behind(consumers) > 200:
			return crash.Unavailable // so that writers wait for the consumers
		case copies.Add(1)%10 == 0: // another copy follows
			return crash.LoseAnswer
		}
		return crash.Accept
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ledger.Close)
	s.ledger, s.spec.Ledger = ledger, ledger.Addr()
	s.name, s.seed = t.Name(), cmp.Or(*soakSeed, s.seed)
	s.spec.Pause, s.spec.PublishTimeout = 40*time.Millisecond, time.Second
	s.spec.Keep, s.spec.Sample = max(lasts/30, time.Second), lasts/100
	pool, err := crash.Open(s.db.Dialect, s.db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	pool.SetMaxOpenConns(1)
	s.pool = pool
	store, err := sqlinbox.New(pool, sqlinbox.Config{Dialect: s.db.Dialect})
	if err != nil {
		t.Fatal(err)
	}
	_, err = pool.ExecContext(t.Context(), "CREATE TABLE business_effect (consumer VARCHAR(40), event VARCHAR(36))")
	if err := errors.Join(err, store.Migrate(t.Context())); err != nil {
		t.Fatal(err)
	}
	return s
}

// run starts and kills processes, lets them end their work, and judges.
func (s *soak) run(ctx context.Context) (v crash.Verdict, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.lasts+5*time.Minute)
	defer cancel()
	running, stop := context.WithTimeout(ctx, s.lasts)
	defer stop()
	var steady []*crash.Process
	for i := range s.steady {
		spec := s.process(fmt.Sprint("steady-", i))
		spec.PGX = s.db.Dialect == core.Postgres && i%2 == 1
		p, err := crash.Start(spec)
		if err != nil {
			return v, err
		}
		defer func() { _ = p.Kill() }()
		steady = append(steady, p)
	}
	problems := make(chan error, s.victims+1)
	for i := range s.victims {
		go func() { problems <- s.kill(running, fmt.Sprint("victim-", i), uint64(i)) }()
	}
	go func() { problems <- s.watch(running, steady) }()
	for range s.victims + 1 {
		if e := <-problems; e != nil {
			stop()
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return v, err
	}
	last := steady
	for i := range s.victims {
		spec := s.process(fmt.Sprint("victim-", i))
		spec.Name, spec.Writers = spec.Name+"-last", 0
		p, err := crash.Start(spec)
		if err != nil {
			return v, err
		}
		defer func() { _ = p.Kill() }()
		last = append(last, p)
	}
	for _, p := range steady {
		err = errors.Join(err, p.Quiet())
	}
	records, e := s.end(ctx, last)
	if err = errors.Join(err, e); err != nil {
		return v, err
	}
	return s.verdict(ctx, records)
}

// process is the Spec of a process that is also a consumer of the same name.
func (s *soak) process(name string) crash.Spec {
	spec := s.spec
	spec.Name, spec.Consumer, spec.Seed = name, name, s.seed
	return spec
}

// kill runs one process after the other until ctx ends. Many live for a moment, and few for long.
func (s *soak) kill(ctx context.Context, name string, n uint64) error {
	r := rand.New(rand.NewPCG(s.seed, n))
	for life := 0; ctx.Err() == nil; life++ {
		spec := s.process(name)
		spec.Name, spec.Seed = fmt.Sprint(name, "-", life), r.Uint64()
		p, err := crash.Start(spec)
		if err != nil {
			return err
		}
		mean := min(s.lasts/6, 10*time.Second)
		moment := time.NewTimer(time.Duration(r.ExpFloat64() * float64(mean)))
		select {
		case <-moment.C:
		case <-p.Done(): // Kill says why
		case <-ctx.Done():
		}
		moment.Stop()
		if err := p.Kill(); err != nil {
			return err
		}
		s.mu.Lock()
		s.lives = append(s.lives, spec.Name)
		s.mu.Unlock()
		if of := s.ledger.Samples(spec.Name); len(of) > 0 {
			s.add("heap of killed processes, MB", mb(of[len(of)-1]))
		}
	}
	return nil
}

func mb(s crash.Sample) float64 { return float64(s.Heap) / (1 << 20) }

// looks are queries of what a database uses. The row of a relay that was killed stays for a day.
var looks = map[core.Dialect]map[string]string{
	core.Postgres: {
		"rows": rowsOfTables,
		"connections": "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()" +
			" AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
		"MB of tables": "SELECT SUM(pg_total_relation_size(oid)) / 1048576 FROM pg_class" +
			" WHERE relkind = 'r' AND relname ~ '^(out|in)box_' AND relname <> 'outbox_relay'",
	},
	core.MySQL: {
		"rows": rowsOfTables,
		"connections": "SELECT COUNT(*) FROM information_schema.processlist" +
			" WHERE db = DATABASE() AND id <> CONNECTION_ID()",
		"MB of tables": "SELECT SUM(data_length + index_length) / 1048576 FROM information_schema.tables WHERE" +
			" table_schema = DATABASE() AND table_name REGEXP '^(out|in)box_' AND table_name <> 'outbox_relay'",
	},
	core.SQLite: {"rows": rowsOfTables},
}

const rowsOfTables = "SELECT (SELECT COUNT(*) FROM outbox_event) + (SELECT COUNT(*) FROM outbox_key)" +
	" + (SELECT COUNT(*) FROM inbox_seen)"

// watch looks at the database until ctx ends, or until a process has ended that should not.
func (s *soak) watch(ctx context.Context, steady []*crash.Process) error {
	tick := time.NewTicker(s.lasts / 100)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		for what, query := range looks[s.db.Dialect] {
			if s.db.Name == "mysql" { // MariaDB need not have it; MySQL's other one fails beside binary text
				query = strings.Replace(query, "information_schema.processlist", "performance_schema.processlist", 1)
			}
			var value float64
			if err := s.pool.QueryRowContext(ctx, query).Scan(&value); err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			s.add(what, value)
		}
		for _, p := range steady {
			select {
			case <-p.Done():
				return p.Killed()
			default:
			}
		}
	}
}

func (s *soak) add(what string, value float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.series[what] = append(s.series[what], value)
}

// end waits until everything is published and consumed, and stops the processes.
func (s *soak) end(ctx context.Context, processes []*crash.Process) (records []crash.Message, err error) {
	for _, p := range processes {
		if !s.ledger.Wait(ctx.Done(), func(_ []crash.Message, note func(string, string) int) bool {
			return note(p.Name, "quiet") > 0
		}) {
			return nil, errors.Join(fmt.Errorf("%s goes on writing", p.Name), p.Kill())
		}
	}
	if _, err = s.drain(ctx); err != nil {
		return nil, err
	}
	for _, p := range processes {
		consumer := strings.TrimSuffix(p.Name, "-last")
		if !s.ledger.Wait(ctx.Done(), func(records []crash.Message, note func(string, string) int) bool {
			return note(consumer, crash.Handled) == len(records)
		}) {
			return nil, errors.Join(fmt.Errorf("%s has not handled all events", p.Name), p.Kill())
		}
	}
	for _, p := range processes {
		err = errors.Join(err, p.Stop())
	}
	return s.ledger.Records(), err
}

// verdict judges the events, their effects, and what was used.
func (s *soak) verdict(ctx context.Context, records []crash.Message) (crash.Verdict, error) {
	v, err := judge(ctx, s.name, s.db, records)
	if err != nil {
		return v, err
	}
	v.Kills = len(s.lives)
	limits, all := map[string]int{}, s.ledger.Note("", "unanswered")+s.ledger.Note("", "late acks")
	for _, name := range s.lives {
		more := s.ledger.Note(name, "unanswered") + s.ledger.Note(name, "late acks")
		limits[name], limits[crash.Poller(name)] = s.spec.HotPerKill()+more, crash.ColdPerKill+more
		all += s.spec.DuplicatesPerKill()
	}
	v.Limit(all, limits)
	err = v.Err()
	wrong := 0
	e := s.pool.QueryRowContext(ctx, fmt.Sprintf("SELECT COUNT(*) FROM (SELECT consumer FROM business_effect GROUP BY"+
		" consumer HAVING COUNT(*) <> %d OR COUNT(DISTINCT event) <> %[1]d) AS wrong", v.Committed)).Scan(&wrong)
	if err = errors.Join(err, e); wrong > 0 {
		err = errors.Join(err, fmt.Errorf("%d consumers have not one effect of each of %d events", wrong, v.Committed))
	}
	for i := range s.steady {
		name := fmt.Sprint("steady-", i)
		for _, of := range s.ledger.Samples(name) {
			s.add("heap of "+name+", MB", mb(of))
			s.add("goroutines of "+name, float64(of.Goroutines))
			s.add("open files of "+name, float64(of.Files))
		}
	}
	for name, values := range s.series {
		// In a short run, tables and pools of connections are still filling.
		if s.lasts < 10*time.Minute && !strings.Contains(name, "steady") {
			continue
		}
		err = errors.Join(err, flat(name, values))
	}
	return v, err
}

// thirds returns the medians of the first and of the last third of the values, without the first
// tenth, in which processes warm up and tables fill.
func thirds(values []float64) (first, last float64) {
	values = values[len(values)/10:]
	median := func(of []float64) float64 {
		if len(of) == 0 {
			return 0
		}
		return slices.Sorted(slices.Values(of))[len(of)/2]
	}
	n := len(values) / 3
	return median(values[:n]), median(values[len(values)-n:])
}

// flat returns an error if the values grow from the first third to the last by more than a fifth and
// two.
func flat(name string, values []float64) error {
	first, last := thirds(values)
	switch {
	case len(values) < 20:
		return fmt.Errorf("%d values of %s prove nothing", len(values), name)
	case last > 1.2*first+2:
		return fmt.Errorf("%s grow: %.4g, then %.4g", name, first, last)
	}
	return nil
}

// The judge of a soak finds a slow leak in noise, and none where there is none.
func TestSoakFindsLeaks(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for name, c := range map[string]struct {
		at    func(n int) float64
		leaks bool
	}{
		"noise":                    {func(int) float64 { return 10 + 5*r.Float64() }, false},
		"warms up, then flat":      {func(n int) float64 { return min(float64(n), 10) + r.Float64() }, false},
		"falls":                    {func(n int) float64 { return 100 - float64(n) }, false},
		"one peak at the end":      {func(n int) float64 { return 10 + float64(max(0, n-95))*100 }, false},
		"a leak of a tenth a step": {func(n int) float64 { return 5 + float64(n)/10 + 3*r.Float64() }, true},
		"half more from the half":  {func(n int) float64 { return 20 + float64(n/50)*10 + r.Float64() }, true},
	} {
		var values []float64
		for n := range 100 {
			values = append(values, c.at(n))
		}
		if err := flat(name, values); (err != nil) != c.leaks {
			t.Errorf("%s: %v", name, err)
		}
	}
	if flat("too few", []float64{1, 1, 1}) == nil {
		t.Error("three values were enough")
	}
}
