package core

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/spelling"
)

// suspicions logs, each once, what a correct program seldom has: a topic in Routes that is almost
// another one, an event whose type or topic Routes seem to misspell, and an event whose topic differs from the
// topic of an earlier event of its key.
type suspicions struct {
	logger *slog.Logger
	routed []string // the types in Routes
	topics []string // the topics in Routes

	types     sync.Map     // the types without a route that were compared, by name
	typesLeft atomic.Int64 // how many more types are compared

	left  atomic.Int64 // how many more events of keys are looked at
	mu    sync.Mutex
	first map[orderedKey]destination
}

// orderedKey is a key, whatever its topic.
type orderedKey struct{ tenant, key string }

// destination is where the first event of a key went.
type destination struct {
	typ    string
	topics []string
	chosen bool
}

// At most so many events of keys are looked at, and so many keys and types are remembered. A program
// shows such a mistake with its first events.
const (
	suspectedEvents = 10_000
	suspectedKeys   = 1_000
	suspectedTypes  = 1_000
)

func newSuspicions(cfg *Config) *suspicions {
	s := &suspicions{
		logger: cfg.Logger, routed: slices.Sorted(maps.Keys(cfg.Routes)), first: map[orderedKey]destination{},
	}
	s.typesLeft.Store(suspectedTypes)
	s.left.Store(suspectedEvents)
	s.compareTopics(cfg)
	return s
}

// compareTopics logs topics in Routes that are almost others in Routes, or of the Router.
func (s *suspicions) compareTopics(cfg *Config) {
	var topics []string
	if n, ok := cfg.Publisher.(TopicNamer); ok {
		topics = n.NamedTopics()
	}
	for _, typ := range s.routed {
		for _, topic := range cfg.Routes[typ] {
			s.topics = append(s.topics, topic)
			if near := spelling.Near(topic, topics); near != "" && !slices.Contains(topics, topic) {
				s.logger.Warn("outbox: Routes has a topic that is almost another one: if it is misspelled, its events "+
					"go where nobody reads", "type", errtext.Clip(typ, 64), "topic", errtext.Clip(topic, 64), "almost",
					errtext.Clip(near, 64))
			}
			topics = append(topics, topic)
		}
	}
}

// look looks at an event and its topics. routed: Routes name the topics.
func (s *suspicions) look(ctx context.Context, e *Event, topics []string, routed bool) {
	if e.Topic == "" && !routed && len(s.routed) > 0 {
		s.lookAtType(ctx, e.Type, topics)
	}
	if e.Key != "" && !e.Unordered && s.left.Load() > 0 && !strings.HasPrefix(topics[0], ServedTopicPrefix) {
		chosen := e.Topic != "" || routed || e.AggregateType != ""
		s.lookAtKey(ctx, orderedKey{e.TenantID, e.Key}, destination{e.Type, topics, chosen})
	}
}

func (s *suspicions) lookAtType(ctx context.Context, typ string, topics []string) {
	if _, compared := s.types.Load(typ); compared || s.typesLeft.Load() <= 0 {
		return
	}
	if _, compared := s.types.LoadOrStore(typ, true); compared {
		return
	}
	s.typesLeft.Add(-1)
	if near := spelling.Near(typ, s.routed); near != "" {
		s.logger.WarnContext(ctx, "outbox: Routes has a type that is almost that of an event, which has no route: "+
			"if it is misspelled in Routes, correct it there", "type", errtext.Clip(typ, 64), "in_routes",
			errtext.Clip(near, 64), "topic", errtext.Clip(topics[0], 64))
	} else if near := spelling.Near(topics[0], s.topics); near != "" && !slices.Contains(s.topics, topics[0]) {
		s.logger.WarnContext(ctx, "outbox: Routes has a topic that is almost that of an event, which has no route: "+
			"if it is misspelled in Routes, correct it there; otherwise the events of one aggregate may have no order",
			"type", errtext.Clip(typ, 64), "in_routes", errtext.Clip(near, 64), "topic", errtext.Clip(topics[0], 64))
	}
}

func (s *suspicions) lookAtKey(ctx context.Context, key orderedKey, d destination) {
	s.left.Add(-1)
	s.mu.Lock()
	first, met := s.first[key]
	if !met && len(s.first) < suspectedKeys {
		s.first[key] = d
	}
	s.mu.Unlock()
	shared := func(topic string) bool { return slices.Contains(first.topics, topic) }
	if !met || first.chosen && d.chosen || slices.ContainsFunc(d.topics, shared) || s.left.Swap(0) <= 0 {
		return
	}
	s.logger.WarnContext(ctx, "outbox: events of one key go to two topics, and only the events of one topic have an "+
		"order: give both types one topic (Routes, Event.Topic), or set Event.AggregateType", "types",
		[]string{errtext.Clip(first.typ, 64), errtext.Clip(d.typ, 64)}, "topics",
		[]string{errtext.Clip(first.topics[0], 64), errtext.Clip(d.topics[0], 64)})
}
