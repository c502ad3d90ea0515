package relay

import (
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// topics are the topics that the publisher of this process serves. It does not change. The zero
// value serves every topic outside ServedTopicPrefix.
type topics struct {
	served  map[string]bool // nil: all
	foreign []string        // named by Routes and not served, sorted
	named   []string        // of ServedTopicPrefix, and named in addition to all others
}

func newTopics(cfg *core.Config) (t topics) {
	if n, ok := cfg.Publisher.(core.TopicNamer); ok {
		for _, topic := range n.NamedTopics() {
			if strings.HasPrefix(topic, core.ServedTopicPrefix) {
				t.named = append(t.named, topic)
			}
		}
	}
	l, ok := cfg.Publisher.(core.TopicLister)
	if !ok {
		return t
	}
	served := l.Topics()
	if served == nil {
		return t
	}
	t.served = map[string]bool{}
	for _, topic := range served {
		t.served[topic] = true
	}
	for _, routes := range cfg.Routes {
		for _, topic := range routes {
			if !t.served[topic] {
				t.foreign = append(t.foreign, topic)
			}
		}
	}
	slices.Sort(t.foreign)
	t.foreign = slices.Compact(t.foreign)
	return t
}

// all reports whether the publisher takes every topic.
func (t *topics) all() bool { return t.served == nil }

// relays reports whether the publisher serves a topic.
func (t *topics) relays(topic string) bool {
	if t.served == nil {
		return core.ClaimRequest{Served: t.named}.Wants(topic, "")
	}
	return t.served[topic]
}

// list returns the topics that the publisher names, sorted.
func (t *topics) list() []string {
	list := slices.Clone(t.named)
	for topic := range t.served {
		list = append(list, topic)
	}
	slices.Sort(list)
	return slices.Compact(list)
}
