package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// echo sends back the bytes that it gets. With whole it first reads all of them.
func echo(t *testing.T, whole bool) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				if !whole {
					_, _ = io.Copy(c, c)
					return
				}
				b, _ := io.ReadAll(c)
				_, _ = c.Write(b)
			})
		}
	})
	return l
}

func dialDelayed(t *testing.T, server net.Listener, delay time.Duration) (*delayProxy, net.Conn) {
	t.Helper()
	p, err := newDelayProxy("tcp", server.Addr().String(), delay)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	c, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return p, c
}

func TestDelayProxyDelaysEachRoundTrip(t *testing.T) {
	const delay, rounds = 5 * time.Millisecond, 10
	p, c := dialDelayed(t, echo(t, false), delay)
	start := time.Now()
	b := make([]byte, 1)
	for i := range rounds {
		if _, err := c.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, b); err != nil || b[0] != byte(i) {
			t.Fatalf("answer %d to %d: %v", b[0], i, err)
		}
	}
	if took := time.Since(start); took < rounds*2*delay {
		t.Errorf("%d round trips took %s, and each at least %s", rounds, took, 2*delay)
	}
	if n := p.roundTrips(); n != rounds {
		t.Errorf("%d round trips were counted, %d were made", n, rounds)
	}
}

// The test sends more bytes than may be on their way at once, in one direction and then in the
// other.
func TestDelayProxyKeepsOrder(t *testing.T) {
	_, c := dialDelayed(t, echo(t, true), time.Millisecond)
	sent := make([]byte, 48<<20)
	_, _ = rand.Read(sent)
	if _, err := c.Write(sent); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sent) {
		t.Errorf("%d bytes were sent, and %d bytes came back, which differ", len(sent), len(got))
	}
}

func TestDelayProxyEndsConnections(t *testing.T) {
	p, c := dialDelayed(t, echo(t, false), time.Millisecond)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.mu.Unlock()
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("reading on a connection that the proxy has ended: %v", err)
	}
}
