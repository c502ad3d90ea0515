package integration

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// The broker is killed with SIGKILL while events are on their way to it, stays away while the service goes on, and comes back. Nothing is lost or
// invented, the first copies of each key stay in order, and the outage costs no event an attempt.
func TestBrokerKilled(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(address string) broker{
		"kafka":    func(address string) broker { return kafkaBroker{address} },
		"rabbitmq": func(address string) broker { return rabbitBroker{address} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startPrivate(t, name)
			var cells []*e2eCell
			for _, open := range e2eDatabases {
				cells = append(cells, newE2ECell(t, open(t), connect(server.address)))
			}
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for _, c := range cells {
				wg.Go(func() { c.produce(4, 50, stop) })
			}
			ended := sync.OnceFunc(func() { close(stop); wg.Wait() })
			defer ended()

			eventually(t, "events are on their way", func() bool {
				for _, c := range cells {
					if c.ledger.acknowledged() < 150 || c.ledger.flying() == 0 {
						return false
					}
				}
				return true
			})
			server.kill(t)
			for _, c := range cells { // each has noticed, and its producers go on
				c := c
				before := c.count("SELECT COUNT(*) FROM outbox_event")
				eventually(t, "publishes fail and events are written", func() bool {
					return c.ledger.failures() > 0 && c.count("SELECT COUNT(*) FROM outbox_event") > before+30
				})
			}
			server.up(t)
			ended()
			for _, c := range cells {
				t.Run(fmt.Sprint(c.services[0].db.Dialector.Name()), func(t *testing.T) {
					c.t = t
					c.settle(90 * time.Second)
					c.compare(1)
				})
			}
		})
	}
}

func (l *ledger) failures() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}
