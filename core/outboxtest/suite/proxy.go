package suite

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy stands between a client and a broker. It can hold all bytes back, like a broker that
// hangs. It can hold only the broker's bytes back, like a broker that acts and does not answer. It
// can also delay answers, cut connections, and send bytes of its own to the client.
type Proxy struct {
	listener net.Listener
	broker   string

	mu      sync.Mutex
	cond    *sync.Cond
	frozen  bool                  // no bytes pass
	held    bool                  // no bytes from the broker pass
	delay   time.Duration         // how long bytes from the broker wait
	clients map[net.Conn]net.Conn // client side to broker side
}

// NewProxy forwards connections to the address of a broker, host:port, until the test ends.
func NewProxy(t *testing.T, broker string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: l, broker: broker, clients: map[net.Conn]net.Conn{}}
	p.cond = sync.NewCond(&p.mu)
	go p.accept()
	t.Cleanup(func() {
		_ = l.Close()
		p.set(func() { p.frozen, p.held, p.delay = false, false, 0 })
		p.Cut()
	})
	return p
}

// Addr is the address to which the client connects.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Dial makes p a dialer that always connects to the proxy. It ignores the address, because brokers
// tell clients their own addresses.
func (p *Proxy) Dial(network, _ string) (net.Conn, error) { return net.Dial(network, p.Addr()) }

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		broker, err := net.Dial("tcp", p.broker)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.clients[client] = broker
		p.mu.Unlock()
		go p.forward(broker, client, false)
		go p.forward(client, broker, true)
	}
}

// chunk has the bytes of one read. They pass when they are due.
type chunk struct {
	bytes []byte
	due   time.Time
}

func (p *Proxy) forward(to, from net.Conn, answers bool) {
	chunks := make(chan chunk, 1000)
	go func() {
		defer close(chunks)
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				chunks <- chunk{append([]byte(nil), buf[:n]...), p.due(answers)}
			}
			if err != nil {
				return
			}
		}
	}()
	for c := range chunks {
		if wait := time.Until(c.due); wait > 0 {
			<-time.After(wait)
		}
		p.mu.Lock()
		for p.frozen || answers && p.held {
			p.cond.Wait()
		}
		_, err := to.Write(c.bytes)
		p.mu.Unlock()
		if err != nil {
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
	for range chunks { // so that the reader ends
	}
}

func (p *Proxy) due(answers bool) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !answers || p.delay == 0 {
		return time.Time{}
	}
	return time.Now().Add(p.delay)
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	change()
	p.cond.Broadcast()
	p.mu.Unlock()
}

// Freeze holds all bytes back until Thaw. No byte is lost.
func (p *Proxy) Freeze() { p.set(func() { p.frozen = true }) }

// Thaw ends a Freeze.
func (p *Proxy) Thaw() { p.set(func() { p.frozen = false }) }

// Hold implements Link.
func (p *Proxy) Hold() { p.set(func() { p.held = true }) }

// Release implements Link.
func (p *Proxy) Release() { p.set(func() { p.held = false }) }

// Delay implements Link.
func (p *Proxy) Delay(d time.Duration) { p.set(func() { p.delay = d }) }

// Cut closes every connection.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for client, broker := range p.clients {
		_ = client.Close()
		_ = broker.Close()
	}
	clear(p.clients)
}

// Tell sends bytes to every client as if they came from the broker.
func (p *Proxy) Tell(t *testing.T, b []byte) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for client := range p.clients {
		if _, err := client.Write(b); err != nil {
			t.Fatal(err)
		}
	}
}
