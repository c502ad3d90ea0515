package crash

import (
	"bufio"
	"encoding/json"
	"net"
	"sync"
)

// Message is a child's message to the Ledger: one copy of an event, or a note about the child.
type Message struct {
	From    string `json:"from"`           // the process
	Cold    bool   `json:"cold,omitempty"` // the process had claimed the event from the table
	EventID string `json:"event,omitempty"`
	Key     string `json:"key,omitempty"`
	KeySeq  int64  `json:"seq,omitempty"`
	Note    string `json:"note,omitempty"` // the name of a note, which is counted; empty for an event
	N       int    `json:"n,omitempty"`

	Take   string  `json:"take,omitempty"` // the consumer that wants the record after the N that it has handled
	Sample *Sample `json:"sample,omitempty"`
}

// by names the part of the process that sent the copy: its fast path, or its poller.
func (m Message) by() string {
	if m.Cold {
		return Poller(m.From)
	}
	return m.From
}

// Poller is the name of a process's poller in Verdict.Repeated.
func Poller(process string) string { return process + ", poller" }

// Answer is the Ledger's answer to a copy.
type Answer struct {
	Refused string `json:"refused,omitempty"` // empty: accepted
	Class   string `json:"class,omitempty"`   // transient, permanent, unavailable
	lose    bool   // close the connection instead of answering

	Next *Message `json:"next,omitempty"` // for a consumer: the record, and how many there are with it
	N    int      `json:"n,omitempty"`
}

// Answers of the Ledger. All but Accept are failures of a broker.
var (
	Accept      = Answer{}
	LoseAnswer  = Answer{lose: true} // the copy is accepted, but its answer is lost
	Transient   = Answer{Refused: "try again", Class: "transient"}
	Permanent   = Answer{Refused: "never", Class: "permanent"}
	Unavailable = Answer{Refused: "away", Class: "unavailable"}
)

// Ledger is a broker inside the test. It keeps all accepted copies, in order, and serves any number
// of processes.
type Ledger struct {
	listener net.Listener
	judge    func(Message) Answer
	wg       sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	records []Message
	notes   map[string]map[string]int // process or consumer, note
	samples map[string][]Sample       // process
	lost    int                       // answers that were lost on purpose
	conns   map[net.Conn]bool
	closed  bool
}

// NewLedger opens a Ledger. It calls judge for each copy before it accepts the copy, without a
// lock. judge may block; nil accepts all copies.
func NewLedger(judge func(Message) Answer) (*Ledger, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if judge == nil {
		judge = func(Message) Answer { return Accept }
	}
	b := &Ledger{listener: l, judge: judge, notes: map[string]map[string]int{}, conns: map[net.Conn]bool{}}
	b.samples = map[string][]Sample{}
	b.changed = sync.NewCond(&b.mu)
	b.wg.Go(b.accept)
	return b, nil
}

// Addr is the address on which the Ledger listens.
func (b *Ledger) Addr() string { return b.listener.Addr().String() }

// Close ends all connections.
func (b *Ledger) Close() {
	_ = b.listener.Close()
	b.mu.Lock()
	b.closed = true
	for c := range b.conns {
		_ = c.Close()
	}
	b.changed.Broadcast()
	b.mu.Unlock()
	b.wg.Wait()
}

func (b *Ledger) accept() {
	for {
		c, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			_ = c.Close()
			return
		}
		b.conns[c] = true
		b.mu.Unlock()
		b.wg.Go(func() { b.serve(c) })
	}
}

func (b *Ledger) serve(c net.Conn) {
	defer func() {
		b.mu.Lock()
		delete(b.conns, c)
		b.mu.Unlock()
		_ = c.Close()
	}()
	in, out := json.NewDecoder(bufio.NewReader(c)), json.NewEncoder(c)
	for {
		var m Message
		if in.Decode(&m) != nil {
			return
		}
		a := Accept
		switch {
		case m.Take != "":
			a = b.take(m)
		case m.EventID != "":
			a = b.judge(m)
		}
		if a.Refused == "" && m.Take == "" {
			b.Append(m)
		}
		if a.lose {
			b.mu.Lock()
			b.lost++
			b.mu.Unlock()
			return
		}
		if out.Encode(a) != nil {
			return
		}
	}
}

// Append accepts a copy or a sample, or counts a note.
func (b *Ledger) Append(m Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case m.Sample != nil:
		b.samples[m.From] = append(b.samples[m.From], *m.Sample)
	case m.Note != "":
		b.notesOf(m.From)[m.Note] += m.N
	default:
		b.records = append(b.records, m)
	}
	b.changed.Broadcast()
}

func (b *Ledger) notesOf(from string) map[string]int {
	if b.notes[from] == nil {
		b.notes[from] = map[string]int{}
	}
	return b.notes[from]
}

// Records returns the copies that were accepted so far, in order.
func (b *Ledger) Records() []Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Message(nil), b.records...)
}

// Note returns how often a process sent the note. If from is empty, it counts all processes.
func (b *Ledger) Note(from, note string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.note(from, note)
}

func (b *Ledger) note(from, note string) (n int) {
	for who, notes := range b.notes {
		if from == "" || who == from {
			n += notes[note]
		}
	}
	return n
}

// Lost returns how many answers were lost on purpose.
func (b *Ledger) Lost() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost
}

// Wait waits until cond holds for the copies that were accepted so far, and returns true. It
// returns false if giveUp is closed first.
func (b *Ledger) Wait(giveUp <-chan struct{}, cond func(records []Message,
	note func(from, note string) int) bool,
) bool {
	done := make(chan struct{})
	defer close(done)
	over := false
	go func() {
		select {
		case <-giveUp:
			b.mu.Lock()
			over = true
			b.changed.Broadcast()
			b.mu.Unlock()
		case <-done:
		}
	}()
	b.mu.Lock()
	defer b.mu.Unlock()
	for !cond(b.records, b.note) {
		if over {
			return false
		}
		b.changed.Wait()
	}
	return true
}
