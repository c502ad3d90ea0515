package relay_test

import (
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

const (
	simAttempts       = 3
	simPublishTimeout = time.Second
	simKillerLosses   = 3 + 2
)

// profile says which faults and loads a schedule has. Each seed draws its own profile, so some
// schedules have much trouble of one kind.
type profile struct {
	faultless bool
	async     int // 0: no publisher is asynchronous, 1: that of topic a is, 2: that of all topics is
	config    core.Config
	processes int
	producers int // of each process
	chaos     int // steps with faults
	budget    int // faults that end an incarnation, a lease or a row; smaller faults are not counted

	reluctant callKind // calls that mostly have to wait for others
	// Chances, per step or per call.
	time, longTime                                      float64
	dbFail, dbLost, dbSlow, dbLocked                    float64
	refuse, forbid, unavailable, keyless, lost, late    float64
	heldBack                                            float64
	pubSlow, hang                                       float64
	commitFail                                          float64
	crash, stop, pause, clock, outage, redrive, discard float64
	cut, timeline                                       float64
	rate, hold, replay, edit                            float64 // actions of the operator
}

func drawProfile(s *scheduler, seed uint64) profile {
	p := profile{
		faultless: seed%10 == 0, processes: 1 + s.rng.IntN(3), producers: 1 + s.rng.IntN(2),
		chaos: 150 + s.rng.IntN(200), budget: 1 + s.rng.IntN(8), time: 0.1 * s.rng.Float64(),
	}
	p.config = core.Config{
		Relay: relay.Config{
			Workers: 1 + s.rng.IntN(3), PublishTimeout: simPublishTimeout, LeaseMargin: 500 * time.Millisecond,
			HotEvents: 1 + s.rng.IntN(6), ColdEvents: 2 + s.rng.IntN(6), HotLease: 3 * time.Second,
			ClaimLease: 4 * time.Second, MaxLease: 8 * time.Second, PollInterval: 500 * time.Millisecond,
			// MaxPollInterval is not 2 s, because a relay reads the operator's settings every 2 s. Two
			// timers that were started at one moment must not end at one moment.
			MaxPollInterval: 1900 * time.Millisecond, ClaimBatch: 2 + s.rng.IntN(3), KeyRun: 1 + s.rng.IntN(3),
			MarkBatch: 1 + s.rng.IntN(3), MaxUnmarked: 1 + s.rng.IntN(4),
			Retry: relay.RetryPolicy{BaseDelay: 50 * time.Millisecond, MaxDelay: time.Second, MaxAttempts: simAttempts},
			Breaker: relay.BreakerPolicy{
				Failures: 3, ProbeInterval: 200 * time.Millisecond,
				MaxProbeInterval: time.Second,
			},
			MaxCrashes: simKillerLosses - 3, DisableJanitor: s.chance(0.7),
			ShutdownTimeout: 2*time.Second + time.Nanosecond, // no pause of a goroutine ends at the same moment
			Retention: relay.Retention{
				DeleteOnSuccess: s.chance(0.2), Keep: 5 * time.Second,
				CleanupInterval: 2 * time.Second, CleanupBatch: 2,
			},
		},
	}
	if s.chance(0.3) {
		p.config.DeadPolicy = core.SkipDead
	}
	if s.chance(0.2) { // so that a missed wake-up makes the relay late
		p.setRelay(func(c *relay.Config) { c.MaxPollInterval = 5 * time.Minute })
	}
	p.reluctant = callKind(s.rng.IntN(int(callHear) + 3)) // beyond callHear: none
	p.stop, p.rate, p.hold, p.replay = p.some(s, 0.01), p.some(s, 0.02), p.some(s, 0.02), p.some(s, 0.05)
	p.edit = p.some(s, 0.1)
	if p.async = s.rng.IntN(3); p.async > 0 {
		p.setRelay(func(c *relay.Config) { c.InFlight = 1 + s.rng.IntN(5) })
	}
	if p.faultless {
		return p
	}
	p.longTime = p.some(s, 0.05)
	p.dbFail, p.dbLost, p.dbSlow, p.dbLocked = p.some(s, 0.2), p.some(s, 0.2), p.some(s, 0.3), p.some(s, 0.3)
	p.refuse, p.forbid, p.unavailable, p.keyless = p.some(s, 0.3), p.some(s, 0.1), p.some(s, 0.2), p.some(s, 0.1)
	p.heldBack = p.some(s, 0.1)
	p.lost, p.late, p.pubSlow = p.some(s, 0.2), p.some(s, 0.2), p.some(s, 0.4)
	p.commitFail = p.some(s, 0.3)
	p.hang = p.some(s, 0.5)
	p.crash, p.pause, p.clock = p.some(s, 0.02), p.some(s, 0.03), p.some(s, 0.02)
	p.outage, p.redrive, p.discard = p.some(s, 0.01), p.some(s, 0.05), p.some(s, 0.02)
	p.cut, p.timeline = p.some(s, 0.03), p.some(s, 0.02)
	return p
}

func (p *profile) relay() relay.Config { return p.config.Relay.(relay.Config) }

func (p *profile) setRelay(change func(*relay.Config)) {
	c := p.relay()
	change(&c)
	p.config.Relay = c
}

// some returns a chance of at most limit, or 0 in half of the schedules.
func (p *profile) some(s *scheduler, limit float64) float64 {
	if s.chance(0.5) {
		return 0
	}
	return limit * s.rng.Float64()
}

// drawPlans gives every process its producers, and the producers their transactions.
func (sim *simulation) drawPlans() {
	keys := 1 + sim.rng.IntN(3)
	made := 0
	event := func(beside []core.Event) core.Event {
		made++
		e := core.Event{
			ID: fmt.Sprintf("%08x-0000-7000-8000-%012x", made, sim.seed), Type: "t",
			Topic: pickOne(sim.scheduler, []string{"a", "a", "b"}),
		}
		switch k := sim.rng.IntN(4 * keys); {
		case k < 3*keys:
			e.Key = fmt.Sprintf("k%d", k%keys)
		case sim.chance(0.3):
			e.Delay = time.Duration(1+sim.rng.IntN(1000)) * time.Millisecond
		}
		if sim.chance(0.2) {
			e.TenantID = simTenant
		}
		// A statement that waits for the locks of two keys would wait for the second lock without
		// the token.
		if len(beside) > 0 && beside[0].Key != "" && e.Key != "" && sim.profile.processes*sim.profile.producers > 1 {
			e.Topic, e.Key, e.TenantID = beside[0].Topic, beside[0].Key, beside[0].TenantID
		}
		sim.truth.expect(fmt.Sprintf("e%d(%s/%s)", made, e.Topic, e.Key), e)
		return e
	}
	for i := range sim.profile.processes {
		p := &process{sim: sim, index: i}
		sim.processes = append(sim.processes, p)
		for n := range sim.profile.producers {
			pr := &producer{sim: sim, name: fmt.Sprintf("producer %d", n)}
			p.producers = append(p.producers, pr)
			for range 1 + sim.rng.IntN(3) {
				plan := plan{rollback: sim.chance(0.15)}
				for range 1 + sim.rng.IntN(2) {
					st := statement{savepoint: sim.chance(0.25), undo: sim.chance(0.5), think: sim.chance(0.2)}
					for range 1 + sim.rng.IntN(2) {
						st.events = append(st.events, event(st.events))
					}
					plan.statements = append(plan.statements, st)
				}
				pr.plans = append(pr.plans, plan)
			}
		}
	}
}
