package sqloutbox

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// cursors remember, for each topic, when the last claimed unordered row was due. While an old
// snapshot is open, PostgreSQL cannot remove the index entries of rows that are finished, and a
// claim that starts at the beginning reads all of them again. So after a pass that read many
// entries for nothing, claims start at the cursors. Rows behind them (committed late, given back,
// or with a lease that is over) wait for the next full pass, at the latest until a claim finds
// nothing. Between claims that find rows a full pass rests for 20 times its duration, so that it
// takes at most some 5 % of a connection's time. Cursors are only a hint: nothing is lost with
// them.
type cursors struct {
	mu     sync.Mutex
	due    map[string]int64 // microseconds since 1970
	open   []string         // the topics of which the last claim of all topics took rows
	passes map[string]pass  // by filter: a probe of one topic is no pass of the others
	// except are the paused tenants of the claims so far, whose rows the cursors have left behind
	except []string
}

// pass is the last full pass.
type pass struct {
	ended time.Time
	took  time.Duration // duration, if it read much for nothing; else 0
	slow  bool          // it took slowPass or longer, or read much for nothing
}

const (
	// slowPass is the duration of a pass from which on the next one is asked how much it read.
	slowPass = 5 * time.Millisecond
	// wastedEntries is how many index entries a pass may read for nothing.
	wastedEntries = 5000

	passRest  = 20          // times its duration
	passAge   = time.Second // after which a full pass comes first, if it has rested
	maxTopics = 1000        // topics that are remembered
	maxPasses = 64          // passes that are remembered
)

// follow forgets everything when the paused tenants have changed. A tenant that goes on has rows
// behind the cursors, and earlier passes are no measure for claims that may take them.
func (c *cursors) follow(except []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.except, except) {
		c.except, c.due, c.open, c.passes = slices.Clone(except), nil, nil, nil
	}
}

// partial returns the wanted topics with their cursors, if a claim should start there.
func (c *cursors) partial(f filter, now time.Time) (topics []string, since []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.passes[f.key()]
	if p.took == 0 || now.Sub(p.ended) >= max(passAge, passRest*p.took) {
		return nil, nil
	}
	for t := range c.due {
		if f.wants(t) {
			topics = append(topics, t)
		}
	}
	slices.Sort(topics)
	for _, t := range topics {
		since = append(since, c.due[t])
	}
	return topics, since
}

// of returns the cursors of topics, or nil if a topic has none.
func (c *cursors) of(topics []string) (since []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range topics {
		due, ok := c.due[t]
		if !ok {
			return nil
		}
		since = append(since, due)
	}
	return since
}

// rested reports whether a full pass may follow a partial one.
func (c *cursors) rested(f filter, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.passes[f.key()]
	return now.Sub(p.ended) >= passRest*p.took
}

// slow reports whether the next full pass should measure how much it reads, because the last was
// slow.
func (c *cursors) slow(f filter) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.passes[f.key()].slow
}

// passed notes the end of a full pass that took rows, and how many index entries it read. A pass
// that took none cannot tell: what the one before has shown holds until a pass is quick.
func (c *cursors) passed(f filter, end time.Time, took time.Duration, rows, entries int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wasted := entries-rows >= wastedEntries
	if rows == 0 {
		wasted = took >= slowPass && c.passes[f.key()].took > 0
	}
	c.note(f, end, took, wasted)
}

func (c *cursors) note(f filter, end time.Time, took time.Duration, wasted bool) {
	if c.passes == nil || len(c.passes) >= maxPasses {
		c.passes = map[string]pass{}
	}
	p := pass{ended: end, slow: wasted || took >= slowPass}
	if wasted {
		p.took = took
	}
	c.passes[f.key()] = p
}

// failed notes the end of a full pass that took too long for its context or for the server.
// Otherwise every claim would begin with another one, and the rows at the cursors would wait for
// it.
func (c *cursors) failed(f filter, end time.Time, took time.Duration) {
	if took >= slowPass {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.note(f, end, took, true)
	}
}

// known returns where a claim of all topics looks for topics: at the beginning, and at those that
// probably have rows. It returns nothing for a claim of named topics.
func (c *cursors) known(f filter) []string {
	if f.only != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string{""}, c.open...)
}

// topicRows are the rows of a topic that a claim took.
type topicRows struct {
	taken int
	due   int64 // the latest due time
}

// claimed moves the cursors behind the rows that a claim took. part is how many rows of a topic it
// looked for. Where it left rows, the cursor must not be ahead of them; left is true if it did not
// take all that it found.
func (c *cursors) claimed(f filter, topics map[string]topicRows, part int, left bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.due == nil || len(c.due) > maxTopics {
		c.due = map[string]int64{}
	}
	for t, rows := range topics {
		if left || rows.taken >= part {
			c.due[t] = rows.due
		} else {
			c.due[t] = max(c.due[t], rows.due)
		}
	}
	if f.only == nil {
		c.open = slices.Collect(maps.Keys(topics))
	}
}

// unorderedRows are the rows of a claim, with what its statement tells about all of it.
type unorderedRows struct {
	rows       []core.Claimed
	due        []int64 // when each row was due, in microseconds since 1970
	topics     int
	candidates int // rows that it found, up to the part of each topic
	entries    int // entries of the index that it read, if it was asked
	took       time.Duration
}

// inTurns sorts the rows, oldest due first, with topics in turns. So a retried row comes after rows
// that wait longer, whatever its id. It returns what was taken of each topic.
func (u *unorderedRows) inTurns() map[string]topicRows {
	type place struct {
		row, turn int
		due       int64
	}
	places := make([]place, len(u.rows))
	for i, due := range u.due {
		places[i] = place{row: i, due: due}
	}
	byDue := func(a, b place) int {
		return cmp.Or(cmp.Compare(a.due, b.due), bytes.Compare(u.rows[a.row].ID[:], u.rows[b.row].ID[:]))
	}
	slices.SortFunc(places, byDue)
	byTopic := map[string]topicRows{}
	for i := range places {
		p := &places[i]
		t := byTopic[u.rows[p.row].Event.Topic]
		p.turn = t.taken
		byTopic[u.rows[p.row].Event.Topic] = topicRows{taken: t.taken + 1, due: p.due}
	}
	if len(byTopic) > 1 {
		slices.SortFunc(places, func(a, b place) int { return cmp.Or(cmp.Compare(a.turn, b.turn), byDue(a, b)) })
	}
	order := make([]int, len(places))
	for i, p := range places {
		order[i] = p.row
	}
	u.due = nil // its order is not the rows' any more
	arrange(u.rows, order)
	return byTopic
}

// arrange moves the row at order[i] to place i.
func arrange(rows []core.Claimed, order []int) {
	for i := range order {
		from := order[i]
		for from < i { // it was moved to make room
			from = order[from]
		}
		rows[i], rows[from] = rows[from], rows[i]
	}
}
