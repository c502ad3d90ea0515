package brokers_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	wmhttp "github.com/ThreeDotsLabs/watermill-http/v2/pkg/http"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/go-chi/chi"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge/httpbridge"
)

func openHTTPEnds(*testing.T, string) ends {
	r := &receivers{urls: map[string]string{}}
	return ends{
		publisher: func(t *testing.T) core.Publisher {
			t.Helper()
			p := must[*httpbridge.Publisher](t)(httpbridge.NewPublisher(httpbridge.Config{
				Endpoint: r.endpoint, AllowHTTP: true,
				AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
			}))
			topics.CloseAtEnd(t, p)
			return p
		},
		subscriber: func(*testing.T, string) message.Subscriber { return &httpSubscriber{receivers: r} },
	}
}

// receivers finds the server of each topic.
type receivers struct {
	mu   sync.Mutex
	urls map[string]string // by topic: the URL of the newest subscriber
}

func (r *receivers) endpoint(topic string) (httpbridge.Endpoint, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	url := r.urls[topic]
	if url == "" {
		return httpbridge.Endpoint{}, core.Unavailable(fmt.Errorf("nobody has subscribed to %s", topic))
	}
	return httpbridge.Endpoint{URL: url}, nil
}

func (r *receivers) put(topic, url string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.urls[topic] = url
}

func (r *receivers) remove(topic, url string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.urls[topic] == url {
		delete(r.urls, topic)
	}
}

// httpSubscriber gives each subscription a subscriber of Watermill and a server of its own. Once
// the server of a Watermill subscriber runs, that subscriber cannot subscribe to another topic.
type httpSubscriber struct {
	receivers *receivers

	mu   sync.Mutex
	ends []func()
}

// Subscribe implements message.Subscriber.
func (s *httpSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	router := chi.NewRouter()
	inner, err := wmhttp.NewSubscriber("", wmhttp.SubscriberConfig{Router: router}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	messages, err := inner.Subscribe(ctx, topic)
	if err != nil {
		cancel()
		return nil, err
	}
	server := httptest.NewServer(router)
	url := server.URL + "/" + topic
	out, passing := make(chan *message.Message), make(chan struct{})
	go func() {
		defer close(passing)
		defer close(out)
		for {
			select {
			case msg := <-messages:
				select {
				case out <- msg:
				case <-ctx.Done():
					msg.Nack()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	s.receivers.put(topic, url)
	end := sync.OnceFunc(func() {
		s.receivers.remove(topic, url)
		cancel()
		<-passing
		stopped := make(chan struct{})
		go func() { // a handler of Watermill stops only after somebody has taken its message
			for {
				select {
				case msg := <-messages:
					msg.Nack()
				case <-stopped:
					return
				}
			}
		}()
		server.CloseClientConnections()
		server.Close()
		close(stopped)
	})
	context.AfterFunc(ctx, end)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = append(s.ends, end)
	return out, nil
}

// Close implements message.Subscriber.
func (s *httpSubscriber) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, end := range s.ends {
		end()
	}
	s.ends = nil
	return nil
}
