package relay_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// Effects are executed by the process that names their topic. This holds if other processes relay
// the same table, wherever the effects were published, and for retries.
func TestServedTopicsAreLeftToThoseWhoNameThem(t *testing.T) {
	for name, serving := range map[string]func(r *core.Router, other core.Publisher){
		"a router alone":             func(*core.Router, core.Publisher) {},
		"a router with other topics": (*core.Router).HandleOther,
	} {
		bubble(t, name, func(t *testing.T) {
			const mails = 40
			const topic = core.ServedTopicPrefix + "mail"
			ctx, stop := context.WithCancel(context.Background())
			var mu sync.Mutex
			sent, bridged, failed := map[string]int{}, []string{}, false
			bridge := core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				bridged = append(bridged, d.Topic)
				return nil
			})
			router := core.NewRouter()
			router.HandleFunc(topic, func(_ context.Context, d core.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				if len(sent) == 3 && !failed { // one error of the mail server
					failed = true
					return core.Unavailable(context.DeadlineExceeded)
				}
				sent[d.ID]++
				return nil
			})
			serving(router, bridge)
			repo := outboxtest.NewRepository()
			var relays sync.WaitGroup
			var plain *core.Outbox
			for _, p := range []core.Publisher{bridge, router} {
				ob := newOutbox(t, core.Config{Repository: repo, Publisher: p})
				if plain == nil {
					plain = ob
				}
				relays.Go(func() {
					noError(t, ob.Run(ctx))
				})
			}
			synctest.Wait()
			for range mails {
				must(t, publishTx(ctx, repo, plain, core.Event{Type: "t", Topic: topic, Unordered: true},
					core.Event{Type: "order.placed"}))
			}
			time.Sleep(5 * time.Minute) // of fake time
			stop()
			relays.Wait()
			equal(t, len(sent), mails, "mails were sent")
			if slices.Contains(bridged, topic) {
				t.Error("a bridge got an effect")
			}
			if len(bridged) != mails {
				t.Errorf("the bridge got %d of %d other events", len(bridged), mails)
			}
		})
	}
}
