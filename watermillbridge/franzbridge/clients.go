package franzbridge

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ormoutbox/ormoutbox/core"
)

// renewEvery is the shortest time between two replacements of the clients.
const renewEvery = 5 * time.Second

// clients are the clients of a Publisher. The client keeps the id of each topic, so a topic that was
// deleted and made again fails until the client forgets it. A client that has forgotten a topic
// numbers its messages from the beginning, and a broker that has the topic after all would take them
// for copies. So the clients are replaced, and the new ones have another producer id.
type clients struct {
	mu       sync.RWMutex // held for reading while client is handed a message
	client   *kgo.Client
	alone    *kgo.Client // sends one message a batch; nil until it is needed
	renewed  time.Time
	stale    atomic.Pointer[error] // why client could not be replaced; nil: it could
	closed   bool
	replaced sync.WaitGroup // clients that finish what they have
	single   sync.Mutex     // held while alone has a message
}

// another makes a further client, which has not connected. A hook of Config.Options may take one
// client alone and panic at the next, as kprom.Metrics does.
func (p *Publisher) another(change ...kgo.Opt) (client *kgo.Client, err error) {
	defer func() {
		if v := recover(); v != nil {
			client, err = nil, fmt.Errorf("franzbridge: a hook of Config.Options takes no further client, and "+
				"needs to: %v", v)
		}
	}()
	return kgo.NewClient(p.cfg.options(change...)...)
}

// renew replaces old, unless that has happened. Messages on their way in old end there.
func (p *Publisher) renew(old *kgo.Client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.client != old || time.Since(p.renewed) < renewEvery {
		return
	}
	p.renewed = time.Now()
	client, err := p.another(kgo.WithHooks(p.conns))
	if err != nil {
		p.stale.Store(&err)
		return
	}
	p.stale.Store(nil)
	alone := p.alone
	p.client, p.alone = client, nil
	p.replaced.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), p.cfg.PublishTimeout)
		defer cancel()
		_ = old.Flush(ctx)
		old.Close()
		if alone != nil {
			p.single.Lock()
			defer p.single.Unlock()
			alone.Close()
		}
	})
}

// madeAgain is the error of a message whose topic has another id than in the client. It takes no
// lock, because the client waits for it while it has no room for messages.
func (p *Publisher) madeAgain(err error) error {
	if stale := p.stale.Load(); stale != nil {
		return core.Unavailable(fmt.Errorf("%w: restart the process, because %w", err, *stale))
	}
	return err
}

// sendAlone sends a message of a refused batch again, as a batch of its own.
func (p *Publisher) sendAlone(ctx context.Context, s *sending, r *kgo.Record) {
	p.single.Lock()
	defer p.single.Unlock()
	client, err := p.aloneClient()
	if err != nil {
		s.ended(r, core.UnavailableForKey(err))
		return
	}
	again := &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers}
	s.ended(client.ProduceSync(ctx, again).First())
}

// aloneClient returns the client of sendAlone.
func (p *Publisher) aloneClient() (*kgo.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, kgo.ErrClientClosed
	}
	if p.alone == nil {
		client, err := p.another(kgo.ProducerLinger(0))
		if err != nil {
			return nil, err
		}
		p.alone = client
	}
	return p.alone, nil
}
