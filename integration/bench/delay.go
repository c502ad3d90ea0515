package main

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// delayProxy is a TCP proxy in front of the server that delivers every byte later, as a longer
// network does. It keeps the order, does not limit the throughput, and counts how often a client
// waited for an answer.
//
// Each direction of a connection has a reader and a writer. Between them all bytes go through one
// delayLine. The delay is the same for all bytes, so the bytes that come first are due first.
type delayProxy struct {
	listener net.Listener
	network  string // the network of the server
	address  string
	line     *delayLine
	asked    atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]bool // nil after close
	all   sync.WaitGroup
}

// newDelayProxy listens on loopback for connections to the server.
func newDelayProxy(network, address string, delay time.Duration) (*delayProxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &delayProxy{
		listener: l, network: network, address: address, line: newDelayLine(delay), conns: map[net.Conn]bool{},
	}
	p.all.Go(p.accept)
	return p, nil
}

// port returns the port on which the proxy listens.
func (p *delayProxy) port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// roundTrips returns how often a client has sent bytes after it got an answer. That is the number
// of its round trips, because all bytes that it sends until the next answer travel together.
func (p *delayProxy) roundTrips() int64 { return p.asked.Load() }

// close ends all connections and goroutines.
func (p *delayProxy) close() error {
	err := p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
	p.mu.Unlock()
	p.all.Wait()
	p.line.close()
	return err
}

func (p *delayProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.serve(client) })
	}
}

// keep registers a connection for close. It returns false after close.
func (p *delayProxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		return false
	}
	p.conns[c] = true
	return true
}

func (p *delayProxy) forget(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.Close()
}

func (p *delayProxy) serve(client net.Conn) {
	defer p.forget(client)
	if !p.keep(client) {
		return
	}
	server, err := net.Dial(p.network, p.address)
	if err != nil {
		return
	}
	defer p.forget(server)
	if !p.keep(server) {
		return
	}
	var answered atomic.Bool
	answered.Store(true) // so that the first message counts
	both := func() { _, _ = client.Close(), server.Close() }
	var done sync.WaitGroup
	done.Go(func() {
		p.line.copy(server, client, func() {
			if answered.Swap(false) {
				p.asked.Add(1)
			}
		}, both)
	})
	done.Go(func() { p.line.copy(client, server, func() { answered.Store(true) }, both) })
	done.Wait()
}

// delayLine passes bytes on after a fixed time.
type delayLine struct {
	delay time.Duration
	in    chan parcel
	ended chan struct{}
}

// parcel has the bytes of one read.
type parcel struct {
	due  time.Time
	data []byte // nil: the end
	to   *outlet
}

func newDelayLine(delay time.Duration) *delayLine {
	d := &delayLine{delay: delay, in: make(chan parcel, 4096), ended: make(chan struct{})}
	go d.run()
	return d
}

// run never waits for a connection, so no connection can delay another one.
func (d *delayLine) run() {
	defer close(d.ended)
	for p := range d.in {
		if wait := time.Until(p.due); wait > 0 {
			preciseSleep(wait)
		}
		p.to.put(p.data)
	}
}

// close ends the line. copy must not be called after it.
func (d *delayLine) close() {
	close(d.in)
	<-d.ended
}

// window bounds the bytes that are on their way in one direction of a connection. It is far more
// than PostgreSQL sends within the delay.
const window = 16 << 20

// copy copies one direction of a connection until its end. It calls read after each read, and
// broken when a write fails.
func (d *delayLine) copy(dst, src net.Conn, read, broken func()) {
	o := newOutlet()
	var writer sync.WaitGroup
	writer.Go(func() {
		if err := o.drain(dst); err != nil {
			broken()
			o.discard()
		}
	})
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			read()
			o.reserve(n)
			d.in <- parcel{time.Now().Add(d.delay), append([]byte(nil), buf[:n]...), o}
		}
		if err != nil {
			break
		}
	}
	d.in <- parcel{time.Now().Add(d.delay), nil, o}
	writer.Wait()
}

// outlet keeps the bytes that are due until they are written.
type outlet struct {
	mu      sync.Mutex
	changed *sync.Cond
	due     net.Buffers
	flying  int // bytes that were read and are not written yet
	ended   bool
	broken  bool
}

func newOutlet() *outlet {
	o := &outlet{}
	o.changed = sync.NewCond(&o.mu)
	return o
}

// reserve waits until n more bytes may be on their way.
func (o *outlet) reserve(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.flying > window && !o.broken {
		o.changed.Wait()
	}
	o.flying += n
}

func (o *outlet) put(data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if data == nil {
		o.ended = true
	} else {
		o.due = append(o.due, data)
	}
	o.changed.Broadcast()
}

// discard lets the reader go on after a write has failed.
func (o *outlet) discard() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken = true
	o.changed.Broadcast()
}

// drain writes the bytes that are due until the end, and then closes dst for writing.
func (o *outlet) drain(dst net.Conn) error {
	for {
		o.mu.Lock()
		for len(o.due) == 0 && !o.ended {
			o.changed.Wait()
		}
		due, ended := o.due, o.ended
		o.due = nil
		o.mu.Unlock()
		n, err := due.WriteTo(dst)
		if err != nil {
			return err
		}
		o.mu.Lock()
		o.flying -= int(n)
		o.changed.Broadcast()
		o.mu.Unlock()
		if ended {
			return closeWrite(dst)
		}
	}
}

func closeWrite(c net.Conn) error {
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return c.Close()
	}
	if err := half.CloseWrite(); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
