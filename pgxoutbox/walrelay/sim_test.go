package walrelay

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/ormoutbox/ormoutbox/core"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "run only this schedule of TestSimulation")
	simFirst = flag.Uint64("sim.first", 1, "first schedule of TestSimulation")
	simCount = flag.Int("sim.count", 0, "schedules of TestSimulation; 0: 20000, and 2000 with -short")
)

// TestSimulation runs the window against a log, a table and a destination in memory. A schedule
// commits, reads, claims, publishes, marks, spills, confirms and crashes in a random order, one
// step after another, and every call may fail, with and without its effect. At the end nothing is
// lost, nothing that a person discarded is sent, and each key has its events in their order, where
// parts may be repeated.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if *simSeed != 0 {
		s := newSim(*simSeed)
		s.trace = func(format string, args ...any) { t.Logf(format, args...) }
		if err := s.run(); err != nil {
			t.Fatal(err)
		}
		return
	}
	count := *simCount
	if count == 0 {
		count = 20000
		if testing.Short() {
			count = 2000
		}
	}
	var seen simCounts
	for seed := *simFirst; seed < *simFirst+uint64(count); seed++ {
		s := newSim(seed)
		if err := s.run(); err != nil {
			t.Fatalf("seed %d: %v\nrun it alone with -sim.seed=%d", seed, err, seed)
		}
		seen.add(&s.seen)
	}
	t.Logf("count: %d schedules", count)
	t.Logf("%+v", seen)
	for what, n := range map[string]int{
		"crashes": seen.Crashes, "repeats": seen.Repeats, "spilled": seen.Spilled, "asked": seen.Asked,
		"back in the log": seen.Back, "redriven": seen.Redriven, "discarded": seen.Discarded, "inserted": seen.Inserted,
		"reconnects": seen.Reconnects, "zombies": seen.Zombies, "stalled": seen.Stalled, "deleted": seen.Deleted,
	} {
		if n == 0 {
			t.Errorf("no schedule had this: %s", what)
		}
	}
}

// simCounts says what happened, so that a test which tests nothing is noticed.
type simCounts struct {
	Crashes, Repeats, Spilled, Asked, Back, Redriven, Discarded, Inserted, Reconnects, Zombies, Stalled, Deleted int
}

func (c *simCounts) add(o *simCounts) {
	c.Crashes += o.Crashes
	c.Repeats += o.Repeats
	c.Spilled += o.Spilled
	c.Asked += o.Asked
	c.Back += o.Back
	c.Redriven += o.Redriven
	c.Discarded += o.Discarded
	c.Inserted += o.Inserted
	c.Reconnects += o.Reconnects
	c.Zombies += o.Zombies
	c.Stalled += o.Stalled
	c.Deleted += o.Deleted
}

// simRow is a row of the table.
type simRow struct {
	row     core.Claimed
	status  int
	claimed int64 // the claim that has it; 0: none
}

// simTx is a transaction of the log.
type simTx struct {
	commit, end pglogrepl.LSN
	rows        []core.Claimed
}

// simLog is the log of the server, and the slot in it.
type simLog struct {
	log     []simTx
	end     pglogrepl.LSN
	slotLSN pglogrepl.LSN // up to where the server was told that nothing need be sent again
}

// simTable has the events of the services.
type simTable struct {
	table     map[core.RowID]*simRow
	seqs      map[string]int64 // the last number of each key
	ids       int64
	names     map[core.RowID]string
	discarded map[core.RowID]bool
}

// simBookmark is the row of the slot in the table outbox_log.
type simBookmark struct {
	epoch              int64
	confirmed, spilled pglogrepl.LSN
}

// simDestination has the events that were published.
type simDestination struct {
	sent  map[string][]int64 // by key
	most  map[string]int64   // the highest number of each key
	loose map[core.RowID]int // copies of events without a key
	stop  string             // a topic that is down
}

// sim is a schedule.
type sim struct {
	*rand.Rand
	simLog // this and the next three survive a crash of the process
	simTable
	simBookmark
	simDestination

	time    int64
	fails   bool
	process *simProcess
	zombied bool  // a process went on after another one had taken over
	claims  int64 // of all processes
	trace   func(string, ...any)
	seen    simCounts
	errs    []error
}

var simTopics = []string{"t0", "t1"}

func newSim(seed uint64) *sim {
	return &sim{
		Rand:   rand.New(rand.NewPCG(seed, 7)),
		simLog: simLog{end: 100, slotLSN: 100},
		simTable: simTable{
			table: map[core.RowID]*simRow{}, seqs: map[string]int64{}, names: map[core.RowID]string{},
			discarded: map[core.RowID]bool{},
		},
		simBookmark: simBookmark{confirmed: 100},
		simDestination: simDestination{
			sent: map[string][]int64{}, most: map[string]int64{}, loose: map[core.RowID]int{},
		},
		fails: true, trace: func(string, ...any) {},
	}
}

func (s *sim) chance(percent int) bool { return s.IntN(100) < percent }

// now is the time of the simulation. Each step takes a second.
func (s *sim) now() time.Time { return time.Unix(1_000_000+s.time, 0) }

// simProcess is a process that reads the slot, or believes so.
type simProcess struct {
	*sim
	epoch     int64
	w         *window
	at, n     int  // the next transaction of the log, and the next event in it
	begun     bool // its begin was read
	held      []*simItem
	marks     []*simItem
	confirmed pglogrepl.LSN // the position that the bookmark has, and the server is told next
	over      []core.KeyID  // keys that had no open rows when the keeper looked
}

// simItem is an event that the relay has.
type simItem struct {
	row     core.Claimed
	ref     core.ClaimRef
	table   bool
	outcome core.FailureKind // of a mark; 0: accepted
	release bool
}

func (s *sim) start() {
	s.epoch++
	from := max(s.confirmed, s.slotLSN)
	p := &simProcess{sim: s, epoch: s.epoch, confirmed: s.slotLSN}
	p.w = newWindow(2+s.IntN(12), 1<<30, func(string) bool { return false })
	p.w.start(from, s.spilled)
	var open []core.KeyID
	for _, r := range s.table {
		if r.open() && !r.row.KeyID.IsZero() && !slices.Contains(open, r.row.KeyID) {
			open = append(open, r.row.KeyID)
		}
		r.claimed = 0 // leases end
	}
	p.w.spill(open)
	p.seek(from)
	s.process = p
	s.trace("%d start epoch %d from %d, spilled %d, open keys %d", s.time, s.epoch, from, s.spilled, len(open))
}

// seek makes the server send from a position on.
func (p *simProcess) seek(from pglogrepl.LSN) {
	p.at, p.n, p.begun = len(p.log), 0, false
	for i, tx := range p.log {
		if tx.end > from {
			p.at = i
			break
		}
	}
}

func (r *simRow) open() bool { return r.status == 0 || r.status == 2 || r.status == 3 }

func (s *sim) newID() (id core.RowID) {
	s.ids++
	binary.BigEndian.PutUint64(id[8:], uint64(s.ids))
	return id
}

// commit commits a transaction of a service.
func (s *sim) commit() {
	tx := simTx{commit: s.end + 8}
	for range 1 + s.IntN(3) {
		row := core.Claimed{ID: s.newID()}
		row.Event.Topic = simTopics[s.IntN(len(simTopics))]
		if !s.chance(20) {
			row.Event.Key = fmt.Sprint("k", s.IntN(3))
			row.KeyID = core.NewKeyID("", row.Event.Topic, row.Event.Key)
			name := row.Event.Topic + "/" + row.Event.Key
			s.seqs[name]++
			row.KeySeq = s.seqs[name]
			s.names[row.ID] = fmt.Sprintf("%s#%d", name, row.KeySeq)
		} else {
			s.names[row.ID] = fmt.Sprintf("loose%d", s.ids)
		}
		tx.rows = append(tx.rows, row)
		s.table[row.ID] = &simRow{row: row, status: statusDone}
	}
	s.end += 16
	tx.end = s.end
	s.log = append(s.log, tx)
}

// errSim is an injected error.
var errSim = errors.New("injected")

// spill implements spiller for one process.
func (p *simProcess) spill(_ context.Context, moves []move) ([]verdict, error) {
	if p.fails && p.chance(15) {
		return nil, errSim
	}
	if p.epoch != p.sim.epoch {
		return nil, errNotLeading
	}
	open := map[core.KeyID]int64{}
	for _, r := range p.table {
		if seq, is := open[r.row.KeyID]; r.open() && !r.row.KeyID.IsZero() && (!is || r.row.KeySeq < seq) {
			open[r.row.KeyID] = r.row.KeySeq
		}
	}
	verdicts := make([]verdict, len(moves))
	for i := range moves {
		m := &moves[i]
		p.spilled = max(p.spilled, m.commit)
		var known *int
		if r := p.table[m.row.ID]; r != nil {
			known = &r.status
		}
		var first *int64
		if seq, is := open[m.row.KeyID]; is {
			first = &seq
		}
		v, write := judge(m, known, first)
		verdicts[i] = v
		if v.here() {
			p.seen.Back++
		}
		p.trace("%d   spill %s ask %v: %d write %v (epoch %d)", p.time, p.names[m.row.ID], m.ask, v, write, p.epoch)
		if !write {
			continue
		}
		if p.table[m.row.ID] == nil {
			p.seen.Inserted++
		}
		p.table[m.row.ID] = &simRow{row: m.row, status: m.status()}
		if first == nil || *first > m.row.KeySeq {
			open[m.row.KeyID] = m.row.KeySeq
		}
		p.seen.Spilled++
	}
	if p.fails && p.chance(10) { // it is written, and the answer is lost
		return nil, errSim
	}
	return verdicts, nil
}

// read reads the next message of the log.
func (p *simProcess) read() {
	if !p.w.hasRoom(p.now()) {
		return
	}
	if p.at >= len(p.log) {
		p.w.idle(p.end)
		return
	}
	tx := &p.log[p.at]
	switch {
	case !p.begun:
		if p.at > 0 && p.chance(20) {
			p.w.idle(p.log[p.at-1].end)
		}
		p.w.begin(tx.commit)
		p.begun, p.n = true, 0
	case p.n < len(tx.rows):
		p.n++
		p.w.add(tx.rows[p.n-1], tx.commit, p.n)
	default:
		p.w.commit(tx.commit, tx.end)
		p.at, p.begun = p.at+1, false
	}
}

func (p *simProcess) request() core.ClaimRequest {
	p.claims++
	req := core.ClaimRequest{ClaimNo: p.claims, Limit: 1 + p.IntN(6), Run: 1 + p.IntN(4), MaxBytes: 1 << 20}
	if p.stop != "" {
		req.Except = []string{p.stop}
	}
	return req
}

// holds reports whether the relay has events of the key.
func (p *simProcess) holds(id core.KeyID) bool {
	has := func(it *simItem) bool { return it.row.KeyID == id }
	return slices.ContainsFunc(p.held, has) || slices.ContainsFunc(p.marks, has)
}

func (p *simProcess) claim() {
	rows, _ := p.w.claim(p.request(), p.chance(70), p.now())
	for _, row := range rows {
		p.trace("%d claim %s from the log (epoch %d)", p.time, p.names[row.ID], p.epoch)
		p.held = append(p.held, &simItem{row: row, ref: core.ClaimRef{ID: row.ID, ClaimNo: row.ClaimNo}})
	}
}

// claimTable claims a row without a key, or the head of one.
func (p *simProcess) claimTable() {
	if p.epoch != p.sim.epoch { // leases of a process that was replaced are the matter of core
		return
	}
	var due []*simRow
	heads := map[core.KeyID]*simRow{}
	for _, r := range p.table {
		switch h := heads[r.row.KeyID]; {
		case !r.open() || r.row.Event.Topic == p.stop:
		case r.row.KeyID.IsZero():
			if r.status != 3 && r.claimed == 0 {
				due = append(due, r)
			}
		case h == nil || r.row.KeySeq < h.row.KeySeq:
			heads[r.row.KeyID] = r
		}
	}
	if p.w.caughtUp() {
		for id, r := range heads {
			if r.status != 3 && r.claimed == 0 && !p.holds(id) {
				due = append(due, r)
			}
		}
	}
	if len(due) == 0 {
		return
	}
	slices.SortFunc(due, func(a, b *simRow) int { return slices.Compare(a.row.ID[:], b.row.ID[:]) })
	r := due[p.IntN(len(due))]
	p.claims++
	r.claimed = p.claims
	p.trace("%d claim %s from the table", p.time, p.names[r.row.ID])
	p.held = append(p.held, &simItem{row: r.row, ref: core.ClaimRef{ID: r.row.ID, ClaimNo: r.claimed}, table: true})
}

// publish publishes an event that the relay has, the first one of its key.
func (p *simProcess) publish() {
	var first []*simItem
	busy := map[core.KeyID]bool{}
	for _, it := range p.marks { // its mark comes before the next one, or the failure stops the key
		if it.outcome != 0 || it.release {
			busy[it.row.KeyID] = !it.row.KeyID.IsZero()
		}
	}
	for _, it := range p.held {
		if it.row.KeyID.IsZero() || !busy[it.row.KeyID] {
			first = append(first, it)
		}
		busy[it.row.KeyID] = !it.row.KeyID.IsZero()
	}
	if len(first) == 0 {
		return
	}
	it := first[p.IntN(len(first))]
	p.held = slices.DeleteFunc(p.held, func(o *simItem) bool { return o == it })
	if p.fails && it.row.Event.Topic == p.stop {
		it.outcome = core.FailUnavailable
	} else if p.fails && p.chance(25) {
		it.outcome = []core.FailureKind{core.FailRetry, core.FailDead, core.FailUnavailable}[p.IntN(3)]
		if p.chance(30) {
			p.accept(it) // the answer is lost
		}
	} else {
		p.accept(it)
	}
	p.trace("%d publish %s: %d (epoch %d)", p.time, p.names[it.row.ID], it.outcome, p.epoch)
	p.marks = append(p.marks, it)
	if it.outcome != 0 && !it.row.KeyID.IsZero() { // the key stops
		p.held = slices.DeleteFunc(p.held, func(o *simItem) bool {
			if o.row.KeyID != it.row.KeyID {
				return false
			}
			o.release = true
			p.marks = append(p.marks, o)
			return true
		})
	}
}

// accept does the work of the destination for an event that it accepts.
func (p *simProcess) accept(it *simItem) {
	if p.discarded[it.row.ID] && !p.zombied {
		p.errs = append(p.errs, fmt.Errorf("%s is sent although it was discarded", p.names[it.row.ID]))
	}
	if it.row.KeyID.IsZero() {
		p.loose[it.row.ID]++
		return
	}
	name := it.row.Event.Topic + "/" + it.row.Event.Key
	if it.row.KeySeq <= p.most[name] {
		p.seen.Repeats++
	}
	last := int64(0)
	if all := p.sent[name]; len(all) > 0 {
		last = all[len(all)-1]
	}
	for seq := last + 1; seq < it.row.KeySeq; seq++ {
		if p.zombied && seq <= p.most[name] {
			continue
		}
		if !p.wasDiscarded(name, seq) {
			p.errs = append(p.errs, fmt.Errorf("%s: %d comes after %d, and %d is missing: %v", name, it.row.KeySeq,
				last, seq, p.sent[name]))
			break
		}
	}
	p.sent[name] = append(p.sent[name], it.row.KeySeq)
	p.most[name] = max(p.most[name], it.row.KeySeq)
}

func (s *sim) wasDiscarded(name string, seq int64) bool {
	for id := range s.discarded {
		if s.names[id] == fmt.Sprintf("%s#%d", name, seq) {
			return true
		}
	}
	return false
}

// mark writes what the relay knows: first acknowledgements, then failures, then releases.
func (p *simProcess) mark() {
	marks := p.marks
	p.marks = nil
	rank := func(it *simItem) int {
		switch {
		case it.release:
			return 2
		case it.outcome != 0:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(marks, func(a, b *simItem) int { return rank(a) - rank(b) })
	for _, it := range marks {
		switch {
		case it.table:
			p.markTable(it)
		case it.release:
			p.w.release(it.ref, time.Time{})
		case it.outcome == 0:
			p.w.accept(it.row.ID)
		case it.outcome == core.FailUnavailable:
			p.w.release(it.ref, p.now().Add(time.Duration(p.IntN(5))*time.Second))
		default:
			e := p.w.refuse(it.ref)
			if e == nil {
				continue
			}
			src := source{window: p.w, spiller: p}
			moves := []move{{row: e.row, commit: e.commit, failure: core.Failure{ClaimRef: it.ref, Kind: it.outcome}}}
			err := src.refuseAll(context.Background(), []*event{e}, moves)
			if err != nil && !errors.Is(err, errNotLeading) {
				p.marks = append(p.marks, it)
			}
		}
	}
}

func (p *simProcess) markTable(it *simItem) {
	r := p.table[it.row.ID]
	if r == nil || r.claimed != it.ref.ClaimNo && it.outcome != 0 {
		return
	}
	r.claimed = 0
	switch {
	case it.release || it.outcome == core.FailUnavailable:
	case it.outcome == core.FailRetry:
		r.status = 2
	case it.outcome == core.FailDead:
		r.status = 3
	case r.open():
		r.status = statusDone
	}
}

func (p *simProcess) ask() {
	src := source{window: p.w, spiller: p}
	n, _, _ := src.ask(context.Background(), 1+p.IntN(5))
	p.seen.Asked += n
}

// confirm writes the bookmark, or tells the server the position that it has.
func (p *simProcess) confirm() {
	if p.epoch != p.sim.epoch {
		return
	}
	if p.confirmed > p.slotLSN {
		p.slotLSN = p.confirmed
		return
	}
	done, answered := p.w.progress()
	if done > p.sim.confirmed {
		p.sim.confirmed = done
		p.w.confirmed(answered)
	}
	p.confirmed = p.sim.confirmed
}

// forget does the work of the keeper, which looks for keys that have no open rows. The window hears
// of it later, as from a database that is slow to answer.
func (p *simProcess) forget() {
	if p.over != nil {
		p.w.unspill(p.over)
		p.over = nil
		return
	}
	keys, _ := p.w.spilledKeys(2)
	p.over = slices.DeleteFunc(keys, func(id core.KeyID) bool {
		for _, r := range p.table {
			if r.open() && r.row.KeyID == id {
				return true
			}
		}
		return false
	})
}

// operator changes rows as people and the cleanup do.
func (s *sim) operator() {
	var rows []*simRow
	for _, r := range s.table {
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		return
	}
	slices.SortFunc(rows, func(a, b *simRow) int { return slices.Compare(a.row.ID[:], b.row.ID[:]) })
	r := rows[s.IntN(len(rows))]
	switch {
	case r.status == 3 && s.chance(60):
		r.status, r.claimed = 2, 0
		s.seen.Redriven++
	case r.status == 3, r.open() && r.claimed == 0 && s.chance(20):
		r.status = 4
		s.discarded[r.row.ID] = true
		s.seen.Discarded++
		s.trace("%d discard %s", s.time, s.names[r.row.ID])
	case !r.open() && r.status == statusDone && s.chance(30):
		delete(s.table, r.row.ID)
		s.seen.Deleted++
	}
}

func (p *simProcess) step() {
	switch n := p.IntN(100); {
	case n < 35:
		p.read()
	case n < 50:
		p.claim()
	case n < 55:
		p.claimTable()
	case n < 75:
		p.publish()
	case n < 85:
		p.mark()
	case n < 92:
		p.ask()
	case n < 97:
		p.confirm()
	default:
		p.forget()
	}
}

func (s *sim) run() error {
	s.start()
	var old *simProcess
	zombies := s.chance(30)
	for range 400 {
		s.time++
		switch n := s.IntN(1000); {
		case n < 80:
			s.commit()
		case n < 110:
			s.operator()
		case n < 118:
			s.seen.Crashes++
			if old = nil; zombies && s.chance(50) {
				old = s.process
				s.seen.Zombies++
				s.zombied = true
			}
			s.start()
		case n < 126:
			s.seen.Reconnects++
			p := s.process
			p.w.shut()
			done, _ := p.w.progress()
			p.seek(done)
			p.w.open()
			s.trace("%d reconnect from %d", s.time, done)
		case n < 132:
			s.stop = append(simTopics, "")[s.IntN(len(simTopics)+1)]
		case n < 140:
			s.seen.Stalled += s.process.w.stalled(s.now(), 20*time.Second)
		case n < 240 && old != nil:
			old.step()
		default:
			s.process.step()
		}
		if len(s.errs) > 0 {
			return s.errs[0]
		}
	}
	// Everything is repaired now, so the work that is left must come to an end.
	s.fails, s.stop = false, ""
	for range 3000 {
		s.time++
		for _, r := range s.table {
			if r.status == 3 {
				r.status = 2
			}
		}
		s.process.step()
		if len(s.errs) > 0 {
			return s.errs[0]
		}
		if s.slotLSN == s.end && s.quiet() {
			return s.check()
		}
	}
	return fmt.Errorf("it does not come to an end: confirmed %d of %d, %d held, %d marks, %d open, caught up %v",
		s.slotLSN, s.end, len(s.process.held), len(s.process.marks), s.open(), s.process.w.caughtUp())
}

func (s *sim) open() (n int) {
	for _, r := range s.table {
		if r.open() {
			n++
		}
	}
	return n
}

func (s *sim) quiet() bool { return s.open() == 0 && len(s.process.held)+len(s.process.marks) == 0 }

// check compares what the destination has with what was committed.
func (s *sim) check() error {
	for _, tx := range s.log {
		for _, row := range tx.rows {
			if s.discarded[row.ID] {
				continue
			}
			name := row.Event.Topic + "/" + row.Event.Key
			if row.KeyID.IsZero() && s.loose[row.ID] == 0 ||
				!row.KeyID.IsZero() && !slices.Contains(s.sent[name], row.KeySeq) {
				return fmt.Errorf("%s is lost", s.names[row.ID])
			}
		}
	}
	for name, all := range s.sent {
		if last := all[len(all)-1]; last != s.most[name] && !s.zombied {
			return fmt.Errorf("%s: the last copy is %d, and not that of the newest: %v", name, last, all)
		}
	}
	return nil
}
