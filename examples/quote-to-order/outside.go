package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/contract"
)

// outside are the systems of others: one that fulfils lines of orders, and one that sends mails.
// They do their work once for each Idempotency-Key, as a payment provider does.
type outside struct {
	url     string
	server  *http.Server
	cluster *cluster
	open    atomic.Bool // closed: every call is answered with 503

	mu        sync.Mutex
	calls     map[string]int // by path
	done      map[string]int // by path
	reference map[string]string
	lost      bool // the answer to a call was lost already
}

func openOutside(c *cluster) (*outside, error) {
	o := &outside{cluster: c, calls: map[string]int{}, done: map[string]int{}, reference: map[string]string{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o.url = "http://" + listener.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mail", o.call(func([]byte) error { return nil }))
	mux.HandleFunc("POST /fulfilment", o.call(o.fulfil))
	mux.HandleFunc("GET /log", o.show)
	o.server = &http.Server{Handler: mux}
	go o.server.Serve(listener)
	return o, nil
}

// call does the work of a request unless it was done before. The first answer about a fulfilment is
// lost: the work is done, and the caller sees a failure.
func (o *outside) call(work func(body []byte) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || !o.open.Load() {
			http.Error(w, "closed", http.StatusServiceUnavailable)
			return
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.calls[r.URL.Path]++
		key := r.Header.Get("Idempotency-Key")
		if o.reference[key] == "" {
			if err := work(body); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			o.done[r.URL.Path]++
			o.reference[key] = fmt.Sprintf("%s-%d", r.URL.Path[1:], o.done[r.URL.Path])
			if r.URL.Path == "/fulfilment" && !o.lost {
				o.lost = true
				http.Error(w, "the answer is lost", http.StatusBadGateway)
				return
			}
		}
		fmt.Fprintln(w, o.reference[key])
	}
}

// fulfil completes a line at once. This system has no outbox. To be sure it sends its message
// twice, each time as a new event.
func (o *outside) fulfil(body []byte) error {
	var request struct {
		Tenant  string `json:"tenant"`
		OrderID string `json:"order_id"`
		Line    int    `json:"line"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return err
	}
	text, err := json.Marshal(contract.FulfilmentCompleted{OrderID: request.OrderID, Line: request.Line})
	if err != nil {
		return err
	}
	for range 2 {
		if err := o.cluster.send(contract.FulfilmentEvents, request.OrderID, text, map[string]string{
			core.HeaderEventID: core.NewEventID(), core.HeaderEventType: "FulfilmentCompleted",
			core.HeaderTenantID: request.Tenant,
		}); err != nil {
			return err
		}
	}
	return nil
}

// counts returns how often a path was called, and how often its work was done.
func (o *outside) counts(path string) (calls, done int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.calls[path], o.done[path]
}

func (o *outside) show(w http.ResponseWriter, _ *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	json.NewEncoder(w).Encode(map[string]any{"calls": o.calls, "done": o.done})
}
