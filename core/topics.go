package core

import (
	"slices"
	"strings"
)

// topics are the topics that the publisher of this process serves. It does not change. The zero
// value serves all topics, without those of ServedTopicPrefix.
type topics struct {
	served map[string]bool // nil: all
	known  map[string]bool // served, or named by Routes; nil: all
	named  []string        // of ServedTopicPrefix, and named in addition to all others
}

func newTopics(cfg *Config) (t topics) {
	if n, ok := cfg.Publisher.(TopicNamer); ok {
		for _, topic := range n.NamedTopics() {
			if strings.HasPrefix(topic, ServedTopicPrefix) {
				t.named = append(t.named, topic)
			}
		}
	}
	l, ok := cfg.Publisher.(TopicLister)
	if !ok {
		return t
	}
	served := l.Topics()
	if served == nil {
		return t
	}
	t.served, t.known = map[string]bool{}, map[string]bool{}
	for _, topic := range served {
		t.served[topic], t.known[topic] = true, true
	}
	for _, routes := range cfg.Routes {
		for _, topic := range routes {
			t.known[topic] = true
		}
	}
	return t
}

// all reports whether the publisher takes every topic.
func (t *topics) all() bool { return t.served == nil }

// relays reports whether the publisher serves a topic.
func (t *topics) relays(topic string) bool {
	if t.served == nil {
		return ClaimRequest{Served: t.named}.Wants(topic, "")
	}
	return t.served[topic]
}

// routed reports whether an event may be recorded for a topic: the publisher serves it, or Routes
// name it.
func (t *topics) routed(topic string) bool { return t.known == nil || t.known[topic] }

// list returns the topics that the publisher names, sorted.
func (t *topics) list() []string {
	list := slices.Clone(t.named)
	for topic := range t.served {
		list = append(list, topic)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// foreign returns the topics that Routes name and that the publisher does not serve, sorted.
func (t *topics) foreign() []string {
	var foreign []string
	for topic := range t.known {
		if !t.served[topic] {
			foreign = append(foreign, topic)
		}
	}
	slices.Sort(foreign)
	return foreign
}
