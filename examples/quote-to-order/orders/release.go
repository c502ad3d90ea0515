package orders

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/broker"
	"github.com/ormoutbox/ormoutbox/inbox"
)

// Releaser is the consumer group that remembers which parked messages were released.
const Releaser = Consumer + ".release"

// releaser delivers parked messages again.
type releaser struct {
	in     *coreinbox.Inbox
	kafka  broker.Kafka
	parked message.Publisher
}

// releaseRequest is the body of POST /release.
type releaseRequest struct{ Actor, Reason string }

// release is for the person on call, after a repair. It may be asked again at any time: each event
// is processed once.
func (l releaser) release(w http.ResponseWriter, r *http.Request) {
	var request releaseRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	l.kafka.Instance = "" // it comes and goes
	from, err := l.kafka.Subscriber(Releaser)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer from.Close()
	released, err := inbox.Release(r.Context(), l.in, inbox.ReleaseRequest{
		From: from, Topic: l.kafka.Topic(Poison), To: l.parked, Actor: request.Actor, Reason: request.Reason,
		Idle: 5 * time.Second, // a group takes up to 3 s to form
	})
	if err != nil { // the messages that were released stay released
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(released)
}
