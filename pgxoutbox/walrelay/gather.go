package walrelay

import (
	"io"
	"time"
)

// gatherer reads ahead from the server. The server sends each message by itself, and a reader that
// is faster would be woken for each of them, three times an event. So while messages come one after
// the other it waits a moment, and then reads many at once. A message that comes alone does not
// wait.
type gatherer struct {
	from    io.Reader
	buf     []byte
	at, end int

	since time.Time // of the count
	reads int       // that waited for the server, since then
}

const (
	gatherBuffer = 64 << 10
	gatherSpan   = 4 * time.Millisecond
	gatherReads  = 24 // in a span: eight transactions with one event
	gatherPause  = 250 * time.Microsecond
)

func newGatherer(from io.Reader) *gatherer {
	return &gatherer{from: from, buf: make([]byte, gatherBuffer)}
}

// Read implements io.Reader.
func (g *gatherer) Read(p []byte) (n int, err error) {
	if g.at == g.end {
		g.pause(time.Now())
		if len(p) >= len(g.buf) {
			return g.from.Read(p)
		}
		g.at = 0
		if g.end, err = g.from.Read(g.buf); g.end == 0 {
			return 0, err
		} // an error beside bytes comes again with the next read
	}
	n = copy(p, g.buf[g.at:g.end])
	g.at += n
	return n, nil
}

func (g *gatherer) pause(now time.Time) {
	if past := now.Sub(g.since); past >= gatherSpan {
		// the pauses themselves make the reads fewer
		busy := past < 2*gatherSpan && g.reads >= gatherReads/3
		g.since, g.reads = now, 0
		if busy {
			g.reads = gatherReads
		}
	}
	if g.reads++; g.reads > gatherReads {
		time.Sleep(gatherPause)
	}
}
