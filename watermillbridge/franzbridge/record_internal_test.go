package franzbridge

import (
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// A size is checked in a business transaction, which must not wait for a client that has no room for
// messages, nor for its replacement.
func TestASizeIsCheckedWithoutALock(t *testing.T) {
	t.Parallel()
	p, err := NewPublisher(Config{Brokers: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	checked := make(chan error, 1)
	go func() { checked <- p.CheckSize(core.Event{Type: "t", Topic: "orders"}) }()
	select {
	case err := <-checked:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits")
	}
	p.mu.Unlock()
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
