package watermillbridge_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	bridge "github.com/ormoutbox/ormoutbox/watermillbridge"
)

// toBroker is the publisher of a bridge to a broker.
type toBroker struct{ fakePublisher }

func (*toBroker) WaitsFor() error { return errors.New("publish to kafka-1: no answer yet") }

// A broker that does not answer has nothing against the event. If it takes other events of the topic
// meanwhile, the key waits alone.
func TestABrokerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := &toBroker{}
		fake.publish = func(_ string, msgs ...*message.Message) error {
			switch string(msgs[0].Payload) {
			case "hangs":
				time.Sleep(time.Minute)
			case "times out":
				time.Sleep(4 * time.Second)
				return os.ErrDeadlineExceeded // of a connection
			case "refused":
				return errors.New("refused")
			}
			return nil
		}
		p, err := bridge.NewPublisher(fake, bridge.Config{})
		must(t, err)
		publish := func(payload string) error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			d := delivery("orders")
			d.Payload = []byte(payload)
			return p.Publish(ctx, d)
		}
		for _, payload := range []string{"hangs", "times out"} {
			err := publish(payload)
			told := strings.Contains(err.Error(), "publish to kafka-1: no answer yet")
			if class, _ := core.ClassOf(err); class != core.ClassUnavailable || told != (payload == "hangs") {
				t.Errorf("%s: class %v, %v; want unavailable, with what it waits for", payload, class, err)
			}
			go func() {
				time.Sleep(time.Second)
				must(t, publish("taken"))
			}()
			if class, _ := core.ClassOf(publish(payload)); class != core.ClassKeyUnavailable {
				t.Errorf("%s while another event is taken: class %v, want that the key waits", payload, class)
			}
		}
		if class, marked := core.ClassOf(publish("refused")); marked {
			t.Errorf("a refusal is marked as %v", class)
		}
		time.Sleep(time.Minute)
	})
}
