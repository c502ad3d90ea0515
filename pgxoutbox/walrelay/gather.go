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
	idle    func() // called before it may wait for the server; may be nil

	since time.Time // when the count of reads began
	reads int       // how many reads waited for the server
}

const (
	gatherBuffer = 128 << 10
	gatherSpan   = 4 * time.Millisecond
	gatherReads  = 24      // reads in a span, those of eight transactions with one event
	gatherMuch   = 2 << 10 // bytes that count as one more read
	gatherPause  = time.Millisecond
)

func newGatherer(from io.Reader) *gatherer {
	return &gatherer{from: from, buf: make([]byte, gatherBuffer)}
}

// Read implements io.Reader.
func (g *gatherer) Read(p []byte) (n int, err error) {
	if g.at == g.end {
		if g.idle != nil {
			g.idle()
		}
		g.pause(time.Now())
		if len(p) >= len(g.buf) {
			return g.from.Read(p)
		}
		g.at = 0
		if g.end, err = g.from.Read(g.buf); g.end == 0 {
			return 0, err
		} // an error beside bytes comes again with the next read
		g.reads += g.end / gatherMuch
	}
	n = copy(p, g.buf[g.at:g.end])
	g.at += n
	return n, nil
}

// pause waits while the server sends much.
func (g *gatherer) pause(now time.Time) {
	if now.Sub(g.since) >= gatherSpan {
		g.since, g.reads = now, 0
	}
	if g.reads++; g.reads > gatherReads {
		time.Sleep(gatherPause)
	}
}
