package relay

import (
	"math"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/pace"
)

const (
	// rateBurst times the rate is how many events may be sent without a pause between them.
	rateBurst = 100 * time.Millisecond
	// rateAhead times the rate is how many events this process holds at most. The rest stays in the
	// table, where it costs no memory and no renewals, and where other relays can take it.
	rateAhead = time.Second
)

// rateLimit is the limit of one destination in this process: a bucket of tokens, one for each
// publish, and a number of concurrent publishes.
type rateLimit struct {
	perSecond float64 // 0: any number
	inFlight  int     // 0: any number

	tokens float64
	filled time.Time   // when the tokens were counted
	parked parked      // ready, and waiting for their turn
	timer  *time.Timer // the next token, while items are parked
	look   rateLook    // when the poller looks for events
	turn   uint        // looks at rows without a key and at keys take turns
	cursor core.KeyID  // the key to go on after
}

// rateLook is when the poller looks for events of a limited destination.
type rateLook struct {
	next  time.Time     // the next look if nothing happens
	asked time.Time     // something asked for a look at this time; zero: nothing did
	gap   time.Duration // the pause after a look that found nothing; it doubles
}

// at returns when the poller looks next.
func (l *rateLook) at() time.Time {
	if !l.asked.IsZero() && l.asked.Before(l.next) {
		return l.asked
	}
	return l.next
}

// ask asks for a look no later than at.
func (l *rateLook) ask(at time.Time) {
	if l.asked.IsZero() || at.Before(l.asked) {
		l.asked = at
	}
}

// begin notes that a look begins: what asks from here on asks for the next one.
func (l *rateLook) begin() { l.asked = time.Time{} }

// end notes what a look found.
func (l *rateLook) end(found bool, now time.Time, shortest, longest time.Duration, random float64) {
	if found {
		l.next, l.gap = now, 0
		return
	}
	l.gap = min(max(2*l.gap, shortest), longest)
	l.next = now.Add(pace.Spread(l.gap, random))
}

// set changes the limits. Tokens above the new burst are lost.
func (l *rateLimit) set(share core.Rate, now time.Time) {
	if l.filled.IsZero() {
		l.tokens, l.filled = 1, now
	}
	l.fill(now)
	l.perSecond, l.inFlight = share.PerSecond, share.InFlight
	l.tokens = min(l.tokens, l.burst())
}

func (l *rateLimit) burst() float64 { return max(1, l.perSecond*rateBurst.Seconds()) }

// fill adds the tokens of the time since the last call.
func (l *rateLimit) fill(now time.Time) {
	if d := now.Sub(l.filled); d > 0 {
		l.tokens = min(l.tokens+d.Seconds()*l.perSecond, l.burst())
		l.filled = now
	}
}

// wait returns how long it takes until there is a token.
func (l *rateLimit) wait(now time.Time) time.Duration {
	if l.perSecond == 0 {
		return 0
	}
	l.fill(now)
	if l.tokens >= 1 {
		return 0
	}
	// rounded up, so that the token is there after it
	return time.Duration(math.Ceil((1-l.tokens)/l.perSecond*float64(time.Second))) + time.Microsecond
}

// open reports whether a publish may begin while others are under way.
func (l *rateLimit) open(now time.Time, underWay int) bool {
	return (l.inFlight == 0 || underWay < l.inFlight) && l.wait(now) == 0
}

// take takes a token. Without one, the next publish waits longer.
func (l *rateLimit) take(now time.Time) {
	if l.perSecond > 0 {
		l.fill(now)
		l.tokens--
	}
}

// most is how many events this process holds for the destination.
func (l *rateLimit) most() int {
	n := math.MaxInt
	if l.perSecond > 0 {
		n = max(1, int(math.Ceil(l.perSecond*rateAhead.Seconds())))
	}
	if l.inFlight > 0 { // so many that none is missing while marks are written
		n = min(n, 4*l.inFlight)
	}
	return n
}

// room returns how many more events this process may hold. A slow destination gets its event from
// the table when its time has nearly come.
func (l *rateLimit) room(now time.Time, held int) int {
	if l.wait(now) > rateAhead {
		return 0
	}
	return max(l.most()-held, 0)
}

// worthLook reports whether there is enough room for a claim.
func (l *rateLimit) worthLook(now time.Time, held int) bool {
	room := l.room(now, held)
	return room > 0 && room >= l.most()/2
}

// lookAt returns when the poller looks for events next. ok is false if that depends on the events
// that are held.
func (l *rateLimit) lookAt(now time.Time, held int) (at time.Time, ok bool) {
	at = later(now, l.look.at())
	if slow := l.wait(now) - rateAhead; slow > 0 && l.most() > held {
		return later(at, now.Add(slow)), true
	}
	return at, l.worthLook(now, held)
}
