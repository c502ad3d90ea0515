package main

import (
	"fmt"
	"strings"
	"sync/atomic"
)

// maxEvents bounds the numbers of events.
const maxEvents = 1 << 23

// payloadSize is the size of every payload, in bytes.
const payloadSize = 512

var payloadPad = strings.Repeat("x", payloadSize)

// newPayload returns the payload of event n: JSON of payloadSize bytes with the number at a fixed
// place.
func newPayload(n int) []byte {
	b := make([]byte, 0, payloadSize)
	b = fmt.Appendf(b, `{"n":"%08d","pad":"`, n)
	b = append(b, payloadPad[:payloadSize-len(b)-2]...)
	return append(b, '"', '}')
}

// payloadNumber returns the number in a payload, or -1 if it has none.
func payloadNumber(b []byte) int {
	if len(b) < 14 {
		return -1
	}
	n := 0
	for _, c := range b[6:14] {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// ledger is the destination of every competitor. It only records which events came.
type ledger struct {
	seen       [maxEvents / 32]atomic.Uint32
	published  atomic.Int64
	duplicates atomic.Int64
	alien      atomic.Int64 // events that no producer here has made, or that were changed on the way
	late       atomic.Int64 // events that were published after a later event of their key
	latest     []atomic.Int64
}

func newLedger() *ledger { return &ledger{} }

// newOrderedLedger also checks the order: event n has key n modulo keys.
func newOrderedLedger(keys int) *ledger { return &ledger{latest: make([]atomic.Int64, keys)} }

// see notes event n and reports whether it is new.
func (l *ledger) see(n int) bool {
	if n < 0 || n >= maxEvents {
		l.alien.Add(1)
		return false
	}
	bit := uint32(1) << (n % 32)
	if l.seen[n/32].Or(bit)&bit != 0 {
		l.duplicates.Add(1)
		return false
	}
	if len(l.latest) > 0 && l.latest[n%len(l.latest)].Swap(int64(n)) > int64(n) {
		l.late.Add(1)
	}
	l.published.Add(1)
	return true
}

// has reports whether event n came.
func (l *ledger) has(n int) bool { return l.seen[n/32].Load()&(1<<(n%32)) != 0 }

// check returns an error unless events 0 to n-1 came, and each once.
func (l *ledger) check(n int) error {
	for i := range n {
		if !l.has(i) {
			return fmt.Errorf("event %d of %d was not published (%d were)", i, n, l.published.Load())
		}
	}
	return l.checkPart(n)
}

// checkPart is check for a competitor that was stopped before its end.
func (l *ledger) checkPart(n int) error {
	if d := l.duplicates.Load(); d > 0 {
		return fmt.Errorf("%d events were published twice without a crash", d)
	}
	if n := l.late.Load(); n > 0 {
		return fmt.Errorf("%d events were published after a later one of their key", n)
	}
	if a := l.alien.Load(); a > 0 {
		return fmt.Errorf("%d events were changed on the way", a)
	}
	if p := l.published.Load(); p > int64(n) {
		return fmt.Errorf("%d events were published, %d were committed", p, n)
	}
	return nil
}
