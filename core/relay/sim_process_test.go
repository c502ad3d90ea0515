package relay_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// process is one instance of the application with its producers. It has one incarnation after
// another.
type process struct {
	sim       *simulation
	index     int
	inc       *incarnation // nil while the process is down
	lives     int
	upAt      uint64 // the step at which the process starts again
	pausedTo  uint64 // the step until which none of its calls goes on
	cutTo     uint64 // the step until which it does not reach the database
	producers []*producer
}

// incarnation is one life of a process.
type incarnation struct {
	proc   *process
	number int
	ob     *core.Outbox
	lanes  map[core.KeyID][]*flight // publishes in flight; guarded by the truth's mutex
	crash  context.CancelFunc
	ctx    context.Context // ends at a crash of the process
	dead   atomic.Bool
	handed []*flight // publishes that an asynchronous publisher has not answered; guarded by the truth's mutex

	settingsLost atomic.Bool // the last look at the operators' settings failed

	// Guarded by the truth's mutex.
	orders instructions
	failed time.Time // when a statement of the relay failed last
	picked map[core.RowID]time.Time
	asked  asked
	acked  map[string]bool // topics whose destination has acknowledged an event to this process

	lateSince time.Time // since when a stopped destination waits for a probe

	stop      context.CancelFunc // ends Run
	stopAsked bool
	ended     bool
	stopped   chan error // the result of Run
	working   int        // producers that have not ended; guarded by the truth's mutex
}

func (i *incarnation) name() string { return fmt.Sprintf("%c%d", 'A'+i.proc.index, i.number) }

// boot starts a new incarnation.
func (p *process) boot() {
	s := p.sim
	inc := &incarnation{
		proc: p, number: p.lives, lanes: map[core.KeyID][]*flight{}, picked: map[core.RowID]time.Time{},
		acked: map[string]bool{},
	}
	p.lives++
	p.inc = inc
	inc.ctx, inc.crash = context.WithCancel(context.Background())
	cfg := s.profile.config
	cfg.Node = inc.name()
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.Repository = &simRepository{Repository: s.repo, sim: s, inc: inc}
	cfg.Publisher = s.publisher(inc)
	ob, err := core.New(cfg)
	if err != nil {
		panic(err)
	}
	inc.ob = ob
	// The number depends on the moment. In a sequence it would depend on which goroutine asks
	// first.
	relay.SetRandom(ob, func() float64 {
		h := fnv.New64a()
		fmt.Fprint(h, s.seed, p.index, s.steps.Load(), time.Now().UnixNano())
		return float64(h.Sum64()>>11) / (1 << 53)
	})
	inc.run()
	for _, producer := range p.producers {
		s.truth.mu.Lock()
		inc.working++
		s.truth.mu.Unlock()
		go producer.work(inc)
	}
	s.note(inc.name() + " starts")
}

// run starts the relay.
func (i *incarnation) run() {
	ctx, cancel := context.WithCancel(context.Background())
	i.stop, i.stopped = cancel, make(chan error, 1)
	i.stopAsked, i.ended = false, false
	i.proc.sim.truth.mu.Lock()
	i.handed = nil // a relay does not know what an earlier one has left behind
	i.proc.sim.truth.mu.Unlock()
	stopped := i.stopped
	go func() { stopped <- i.ob.Run(ctx) }()
}

// kill ends an incarnation at once. From here on, none of its calls has an effect. Each call gets
// an error.
func (p *process) kill() {
	s, inc := p.sim, p.inc
	p.inc = nil
	s.note(inc.name() + " crashes")
	calls := s.waiting(func(c *call) bool { return c.inc == inc })
	inc.dead.Store(true)
	for _, c := range calls {
		v := died
		if c.kind == callCommit && s.chance(0.5) {
			v = diedAfter
		}
		s.release(c, v)
	}
	inc.crash() // ends the calls that wait for locks
	s.note("locks of " + inc.name())
	inc.stop()
	s.note(inc.name() + " is gone")
	s.ghosts = append(s.ghosts, inc)
}

// producer is a goroutine of the application. It runs one transaction after another, and writes and
// publishes in each.
type producer struct {
	sim   *simulation
	name  string
	plans []plan
	next  int
}

// plan is one transaction.
type plan struct {
	statements []statement
	rollback   bool
}

type statement struct {
	events    []core.Event
	savepoint bool
	undo      bool // roll back to the savepoint
	think     bool // pause for a while
}

var errDied = errors.New("process died")

func (p *producer) work(inc *incarnation) {
	defer func() {
		p.sim.truth.mu.Lock()
		inc.working--
		p.sim.truth.mu.Unlock()
	}()
	for p.next < len(p.plans) {
		if !p.think(inc, fmt.Sprintf("begins %d", p.next)) {
			return
		}
		t := p.plans[p.next]
		p.next++
		if errors.Is(p.transaction(inc, t), errDied) {
			return
		}
	}
}

func (p *producer) think(inc *incarnation, what string) bool {
	v := p.sim.park(&call{name: inc.name() + " " + p.name + " " + what, kind: callThink, inc: inc, ctx: inc.ctx})
	return v != died && v != diedAfter
}

func (p *producer) transaction(inc *incarnation, plan plan) error {
	s := p.sim
	tx, err := s.repo.Begin(context.Background())
	if err != nil {
		return err
	}
	var rows []core.RowID
	tx.OnOutcome(func(core.Outcome) { s.truth.ended(rows) })
	for i, st := range plan.statements {
		tx.OnOutcome(func(core.Outcome) { // this callback runs before that of the relay
			s.park(&call{
				name: fmt.Sprintf("%s %s hears of the end of %d", inc.name(), p.name, i), kind: callHear,
				inc: inc, ctx: inc.ctx,
			})
		})
		for _, e := range st.events {
			id, err := core.NewRowID(e.ID, e.Topic)
			if err != nil {
				return err
			}
			rows = append(rows, id)
		}
		if err := p.statement(inc, tx, st); err != nil {
			_ = tx.Rollback()
			return err
		}
		if st.think && !p.think(inc, fmt.Sprintf("thinks %d", i)) {
			_ = tx.Rollback()
			return errDied
		}
	}
	if plan.rollback {
		_ = tx.Rollback()
		return nil
	}
	return p.commit(inc, tx)
}

func (p *producer) statement(inc *incarnation, tx simTx, st statement) error {
	ctx := inc.ctx
	if st.savepoint {
		if _, err := tx.Exec(ctx, "SAVEPOINT s"); err != nil {
			return err
		}
	}
	if _, err := inc.ob.Publish(ctx, tx, st.events...); err != nil {
		return err
	}
	if st.savepoint {
		end := "RELEASE SAVEPOINT s"
		if st.undo {
			end = "ROLLBACK TO SAVEPOINT s"
		}
		if _, err := tx.Exec(ctx, end); err != nil {
			return err
		}
	}
	return nil
}
