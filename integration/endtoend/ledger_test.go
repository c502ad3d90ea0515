package endtoend_test

import (
	"context"
	"regexp"
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
)

// ledger counts the publishes of a cell's relays, row by row. A second copy at the broker is right
// only if the answer to a call was lost.
type ledger struct {
	mu       sync.Mutex
	rows     map[core.RowID]*tally
	acks     int
	refused  int // calls that ended with an error
	inFlight int
	first    map[string]int // counts the first few different errors, by their text
}

type tally struct {
	calls, acks int
	receipt     string // receipt of the last acknowledgement
}

// variable matches the parts that differ between two errors of one kind.
var variable = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|127\.0\.0\.1:\d+`)

// through returns a publisher that counts the calls of pub.
func (l *ledger) through(pub core.ReceiptPublisher) core.Publisher {
	b := bookkeeper{ledger: l, pub: pub}
	if async, ok := pub.(core.AsyncPublisher); ok {
		return asyncBookkeeper{b, async}
	}
	return b
}

type asyncBookkeeper struct {
	bookkeeper
	async core.AsyncPublisher
}

func (b asyncBookkeeper) PublishAsync(ctx context.Context, d core.Delivery, done func(string, error)) {
	end := b.begin(d)
	b.async.PublishAsync(ctx, d, func(receipt string, err error) {
		end(receipt, err)
		done(receipt, err)
	})
}

type bookkeeper struct {
	*ledger
	pub core.ReceiptPublisher
}

func (b bookkeeper) Publish(ctx context.Context, d core.Delivery) error {
	_, err := b.PublishWithReceipt(ctx, d)
	return err
}

func (b bookkeeper) PublishWithReceipt(ctx context.Context, d core.Delivery) (string, error) {
	end := b.begin(d)
	receipt, err := b.pub.PublishWithReceipt(ctx, d)
	end(receipt, err)
	return receipt, err
}

// begin records a call. The function that it returns records the end of the call.
func (b bookkeeper) begin(d core.Delivery) (end func(receipt string, err error)) {
	b.mu.Lock()
	if b.rows == nil {
		b.rows, b.first = map[core.RowID]*tally{}, map[string]int{}
	}
	row := b.rows[d.RowID]
	if row == nil {
		row = &tally{}
		b.rows[d.RowID] = row
	}
	row.calls++
	b.inFlight++
	b.mu.Unlock()
	answered := false
	return func(receipt string, err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !answered { // a second answer is ignored
			b.inFlight--
		}
		answered = true
		if err == nil {
			b.acks++
			row.acks++
			row.receipt = receipt
			return
		}
		b.refused++
		class, _ := core.ClassOf(err)
		text := class.String() + ": " + variable.ReplaceAllString(err.Error(), "*")
		if len(b.first) < 12 || b.first[text] > 0 {
			b.first[text]++
		}
	}
}

// acknowledged returns how many calls were acknowledged.
func (l *ledger) acknowledged() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acks
}

// flying returns how many calls are under way.
func (l *ledger) flying() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inFlight
}

// failures returns how many calls ended with an error.
func (l *ledger) failures() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

// of returns the calls about a row.
func (l *ledger) of(id core.RowID) tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.rows[id]; t != nil {
		return *t
	}
	return tally{}
}
