package brokers_test

import (
	"net"
	"sync"
	"testing"
)

// brokerProxy stands between a client and a broker. It can hold all bytes back, like a broker that
// hangs. It can also cut connections, and send bytes of its own to the client.
type brokerProxy struct {
	listener net.Listener
	broker   string

	mu      sync.Mutex
	cond    *sync.Cond
	frozen  bool
	clients map[net.Conn]net.Conn // client side to broker side
	closed  bool
}

func newBrokerProxy(t *testing.T, broker string) *brokerProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &brokerProxy{listener: l, broker: broker, clients: map[net.Conn]net.Conn{}}
	p.cond = sync.NewCond(&p.mu)
	go p.accept()
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		p.closed, p.frozen = true, false
		p.cond.Broadcast()
		p.mu.Unlock()
		p.Cut()
	})
	return p
}

func (p *brokerProxy) Addr() string { return p.listener.Addr().String() }

// Dial makes p a dialer that goes to the broker through the proxy whatever the address, because
// brokers tell clients addresses of their own.
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
		go p.forward(broker, client)
		go p.forward(client, broker)
	}
}

func (p *brokerProxy) forward(to, from net.Conn) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		for p.frozen {
			p.cond.Wait()
		}
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Freeze holds all bytes back until Thaw. No byte is lost.
func (p *brokerProxy) Freeze() {
	p.mu.Lock()
	p.frozen = true
	p.mu.Unlock()
}

func (p *brokerProxy) Thaw() {
	p.mu.Lock()
	p.frozen = false
	p.cond.Broadcast()
	p.mu.Unlock()
}

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
