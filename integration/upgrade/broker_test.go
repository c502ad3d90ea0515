package upgrade_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// delivery is what a process sends.
type delivery struct {
	By, ID, Type, Key string
	Seq               int64
}

// broker takes the events of all processes, in one order.
type broker struct {
	URL string

	mu       sync.Mutex
	refused  map[string]int // deliveries of an event that were refused
	mended   bool           // the broker takes events of the type "poison"
	accepted []delivery
	ids      map[string]bool
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	b := &broker{refused: map[string]int{}, ids: map[string]bool{}}
	s := httptest.NewServer(http.HandlerFunc(func(resp http.ResponseWriter, req *http.Request) {
		var d delivery
		if err := json.NewDecoder(req.Body).Decode(&d); err != nil {
			t.Error(err)
		}
		resp.WriteHeader(b.take(t, d))
	}))
	t.Cleanup(s.Close)
	b.URL = s.URL
	return b
}

// take refuses an event of the type "flaky" once, and one of the type "poison" until mend.
func (b *broker) take(t *testing.T, d delivery) (status int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case d.Type == "poison" && !b.mended:
		b.refused[d.ID]++
		return http.StatusUnprocessableEntity
	case d.Type == "flaky" && b.refused[d.ID] == 0:
		b.refused[d.ID]++
		return http.StatusServiceUnavailable
	case b.ids[d.ID]:
		t.Errorf("%s sent %s %s a second time", d.By, d.Type, d.ID)
	}
	b.ids[d.ID] = true
	b.accepted = append(b.accepted, d)
	return http.StatusOK
}

func (b *broker) mend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mended = true
}

// taken returns the deliveries that were accepted so far.
func (b *broker) taken() []delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]delivery(nil), b.accepted...)
}

// by counts the events that each process has sent.
func (b *broker) by() map[string]int {
	by := map[string]int{}
	for _, d := range b.taken() {
		by[d.By]++
	}
	return by
}
