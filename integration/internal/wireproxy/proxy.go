// Package wireproxy stands between a driver and its database and cuts the connection around a
// COMMIT, or all connections. It knows the protocols of PostgreSQL and MySQL only as far as it needs
// to find a COMMIT that is sent as a simple statement, and the answer to it.
package wireproxy

import (
	"bytes"
	"encoding/binary"
	"net"
	"sync"
	"time"
)

// Cut says where the connection ends at the next COMMIT.
type Cut string

// Cuts.
const (
	None         Cut = ""
	BeforeServer Cut = "before the server"    // the server never sees the COMMIT
	HalfSent     Cut = "in the middle of it"  // the server sees a part of it
	Unread       Cut = "as the server has it" // it is forwarded, but the answer is not read
	Answered     Cut = "before the answer"    // the server has answered, the client does not get it
	HalfAnswered Cut = "in the answer"        // the client gets a part of the answer
	Silent       Cut = "never, but silent"    // the server has answered; the client waits for it in vain
)

// Cuts lists them all.
var Cuts = []Cut{BeforeServer, HalfSent, Unread, Answered, HalfAnswered, Silent}

// Proxy listens for a driver.
type Proxy struct {
	listener net.Listener
	server   string
	wg       sync.WaitGroup

	mu    sync.Mutex
	next  Cut
	cuts  int
	trips int
	conns map[net.Conn]bool
	over  bool // no connection is let through
}

// New opens a proxy in front of the server.
func New(server string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, server: server, conns: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is the address to which the driver connects.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close ends all connections.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.Away(true)
	p.wg.Wait()
}

// Away ends all connections and lets no new one through, until it is called with false.
func (p *Proxy) Away(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over = away; away {
		for c := range p.conns {
			_ = c.Close()
		}
	}
}

// CutNext arms the proxy for the next COMMIT of any connection.
func (p *Proxy) CutNext(c Cut) {
	p.mu.Lock()
	p.next = c
	p.mu.Unlock()
}

// Made returns how many times a connection was cut, or fell silent.
func (p *Proxy) Made() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// Trips returns how many round trips clients have made: pieces that they sent after an answer.
func (p *Proxy) Trips() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trips
}

// Connections returns how many connections of clients are open.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) / 2 // each has one to the server
}

func (p *Proxy) take() Cut {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.next
	if p.next = None; c != None {
		p.cuts++
	}
	return c
}

func (p *Proxy) hold(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		_ = c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) drop(cs ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range cs {
		delete(p.conns, c)
		_ = c.Close()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() {
			if !p.hold(client) {
				return
			}
			defer p.drop(client)
			server, err := net.DialTimeout("tcp", p.server, 10*time.Second)
			if err != nil || !p.hold(server) {
				return
			}
			defer p.drop(server)
			(&link{proxy: p, client: client, server: server}).run()
		})
	}
}

// link is one connection.
type link struct {
	proxy          *Proxy
	client, server net.Conn

	mu      sync.Mutex
	cut     Cut  // cut for the COMMIT that is under way
	sending bool // the last piece was the client's
}

// run forwards until the connection ends. It looks for a COMMIT in each piece that it reads: a
// driver writes a COMMIT in one piece and then waits for the answer.
func (l *link) run() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.answers()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(buf)
		if err != nil {
			break
		}
		l.sent()
		if b := buf[:n]; isCommit(b) {
			if !l.commit(b) {
				break
			}
		} else if _, err := l.server.Write(b); err != nil {
			break
		}
	}
	_ = l.client.Close()
	_ = l.server.Close()
	<-done
}

// sent counts a piece of the client.
func (l *link) sent() {
	l.mu.Lock()
	first := !l.sending
	l.sending = true
	l.mu.Unlock()
	if first {
		l.proxy.mu.Lock()
		l.proxy.trips++
		l.proxy.mu.Unlock()
	}
}

// commit forwards a COMMIT, or the part of it that the cut lets through. It reports false when the
// connection is over.
func (l *link) commit(b []byte) bool {
	cut := l.proxy.take()
	l.mu.Lock()
	l.cut = cut
	l.mu.Unlock()
	switch cut {
	case BeforeServer:
		return false
	case HalfSent:
		_, _ = l.server.Write(b[:len(b)/2])
		return false
	case Unread:
		_, _ = l.server.Write(b)
		return false
	case None, Answered, HalfAnswered, Silent:
	}
	_, err := l.server.Write(b)
	return err == nil
}

// answers forwards the bytes of the server.
func (l *link) answers() {
	defer l.client.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buf)
		if err != nil {
			return
		}
		l.mu.Lock()
		cut := l.cut
		l.sending = false
		l.mu.Unlock()
		switch cut {
		case Answered, Unread:
			return
		case HalfAnswered:
			_, _ = l.client.Write(buf[:n/2])
			return
		case Silent:
			continue // until the client gives up
		case None, BeforeServer, HalfSent:
		}
		if _, err := l.client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// isCommit recognises a simple query of PostgreSQL ('Q', length, text, 0) or a COM_QUERY of MySQL
// (length, sequence, 3, text) that says COMMIT.
func isCommit(b []byte) bool {
	const commit = "COMMIT"
	b = afterCloses(b)
	var text []byte
	switch {
	case len(b) > 5 && b[0] == 'Q' && int(binary.BigEndian.Uint32(b[1:5])) == len(b)-1:
		text = bytes.TrimRight(b[5:], "\x00")
	case len(b) > 5 && b[4] == 3 && int(b[0])|int(b[1])<<8|int(b[2])<<16 == len(b)-4:
		text = b[5:]
	default:
		return false
	}
	return len(text) >= len(commit) && bytes.EqualFold(bytes.TrimSpace(text)[:len(commit)], []byte(commit))
}

// afterCloses skips COM_STMT_CLOSE of MySQL. This command has no answer, so a driver sends the next
// command in the same piece.
func afterCloses(b []byte) []byte {
	const size = 4 + 1 + 4
	for len(b) > size && b[0] == size-4 && b[1] == 0 && b[2] == 0 && b[4] == 0x19 {
		b = b[size:]
	}
	return b
}
