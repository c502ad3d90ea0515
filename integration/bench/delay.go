package main

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// delayProxy is a TCP proxy in front of the server that delivers every byte later, as a longer
// network does. It keeps the order, and counts how often a client waited for an answer.
type delayProxy struct {
	listener net.Listener
	network  string // the network of the server
	address  string
	delay    time.Duration
	asked    atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
	ended bool
	all   sync.WaitGroup
}

// newDelayProxy listens on loopback for connections to the server.
func newDelayProxy(network, address string, delay time.Duration) (*delayProxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &delayProxy{listener: l, network: network, address: address, delay: delay}
	p.all.Go(func() {
		for {
			client, err := p.listener.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.serve(client) })
		}
	})
	return p, nil
}

func (p *delayProxy) port() uint16 { return uint16(p.listener.Addr().(*net.TCPAddr).Port) }

// roundTrips returns how often a client has sent bytes after it got an answer. That is the number
// of its round trips, because all bytes that it sends until the next answer travel together.
func (p *delayProxy) roundTrips() int64 { return p.asked.Load() }

// close ends all connections and goroutines.
func (p *delayProxy) close() error {
	err := p.listener.Close()
	p.mu.Lock()
	p.ended = true
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.all.Wait()
	return err
}

func (p *delayProxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial(p.network, p.address)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.conns = append(p.conns, client, server)
	ended := p.ended
	p.mu.Unlock()
	if ended {
		return
	}
	var answered atomic.Bool
	answered.Store(true) // so that the first message counts
	var both sync.WaitGroup
	both.Go(func() {
		p.copy(server, client, func() {
			if answered.Swap(false) {
				p.asked.Add(1)
			}
		})
	})
	both.Go(func() { p.copy(client, server, func() { answered.Store(true) }) })
	both.Wait()
}

// parcel has the bytes of one read.
type parcel struct {
	due  time.Time
	data []byte
}

// copy copies one direction of a connection until its end, which ends the other direction too. It
// calls read after each read.
func (p *delayProxy) copy(dst, src net.Conn, read func()) {
	way := make(chan parcel, 1024) // far more than PostgreSQL sends within the delay
	var writer sync.WaitGroup
	writer.Go(func() {
		var err error
		for one := range way {
			if wait := time.Until(one.due); wait > 0 {
				preciseSleep(wait)
			}
			if err == nil {
				_, err = dst.Write(one.data)
			}
		}
		if half, ok := dst.(interface{ CloseWrite() error }); !ok || errors.Join(err, half.CloseWrite()) != nil {
			_ = dst.Close()
		}
	})
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			read()
			way <- parcel{time.Now().Add(p.delay), append([]byte(nil), buf[:n]...)}
		}
		if err != nil {
			break
		}
	}
	close(way)
	writer.Wait()
}
