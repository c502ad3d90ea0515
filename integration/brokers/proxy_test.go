package brokers_test

import (
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// brokerProxy stands between a client and a broker. It can hold all bytes back, like a broker that
// hangs. It can hold only the broker's bytes back, like a broker that acts and does not answer. It
// can also delay answers, cut connections, and send bytes of its own to the client.
type brokerProxy struct {
	listener net.Listener
	broker   string

	mu      sync.Mutex
	cond    *sync.Cond
	frozen  bool                  // no bytes pass
	held    bool                  // no bytes from the broker pass
	delay   time.Duration         // how long bytes from the broker wait
	clients map[net.Conn]net.Conn // client side to broker side
}

func newBrokerProxy(t *testing.T, broker string) *brokerProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fixture.NoError(t, err)
	p := &brokerProxy{listener: l, broker: broker, clients: map[net.Conn]net.Conn{}}
	p.cond = sync.NewCond(&p.mu)
	go p.accept()
	t.Cleanup(func() {
		_ = l.Close()
		p.set(func() { p.frozen, p.held, p.delay = false, false, 0 })
		p.Cut()
	})
	return p
}

// proxied is the URL of a server as it is reached through a proxy.
func proxied(t *testing.T, address string) (string, *brokerProxy) {
	t.Helper()
	u, err := url.Parse(address)
	fixture.NoError(t, err)
	proxy := newBrokerProxy(t, u.Host)
	u.Host = proxy.Addr()
	return u.String(), proxy
}

func (p *brokerProxy) Addr() string { return p.listener.Addr().String() }

// Dial makes p a dialer that always connects to the proxy. It ignores the address, because brokers
// tell clients their own addresses.
func (p *brokerProxy) Dial(network, _ string) (net.Conn, error) { return net.Dial(network, p.Addr()) }

func (p *brokerProxy) accept() {
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

func (p *brokerProxy) forward(to, from net.Conn, answers bool) {
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

func (p *brokerProxy) due(answers bool) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !answers || p.delay == 0 {
		return time.Time{}
	}
	return time.Now().Add(p.delay)
}

func (p *brokerProxy) set(change func()) {
	p.mu.Lock()
	change()
	p.cond.Broadcast()
	p.mu.Unlock()
}

// Freeze holds all bytes back until Thaw. No byte is lost.
func (p *brokerProxy) Freeze() { p.set(func() { p.frozen = true }) }

// Thaw ends a Freeze.
func (p *brokerProxy) Thaw() { p.set(func() { p.frozen = false }) }

// Hold implements answers.
func (p *brokerProxy) Hold() { p.set(func() { p.held = true }) }

// Release implements answers.
func (p *brokerProxy) Release() { p.set(func() { p.held = false }) }

// Delay implements answers.
func (p *brokerProxy) Delay(d time.Duration) { p.set(func() { p.delay = d }) }

// Cut closes every connection.
func (p *brokerProxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for client, broker := range p.clients {
		_ = client.Close()
		_ = broker.Close()
	}
	clear(p.clients)
}

// Tell sends bytes to every client as if they came from the broker.
func (p *brokerProxy) Tell(t *testing.T, b []byte) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for client := range p.clients {
		if _, err := client.Write(b); err != nil {
			t.Fatal(err)
		}
	}
}
