package core

import (
	"context"
	"slices"
	"testing"
)

type naming struct {
	Publisher
	listed, named []string
}

func (p naming) Topics() []string      { return p.listed }
func (p naming) NamedTopics() []string { return p.named }

func TestTopics(t *testing.T) {
	var zero topics
	if !zero.all() || !zero.relays("a") || zero.relays(ServedTopicPrefix+"a") || !zero.routed("a") ||
		len(zero.list())+len(zero.foreign()) != 0 {
		t.Fatal("a publisher that names no topics does not serve all")
	}
	other := PublisherFunc(func(context.Context, Delivery) error { return nil })
	routes := map[string][]string{"order": {"b", "elsewhere"}}

	all := newTopics(&Config{Publisher: naming{other, nil, []string{"x", ServedTopicPrefix + "a"}}, Routes: routes})
	if !all.all() || !all.relays("b") || !all.relays(ServedTopicPrefix+"a") || all.relays(ServedTopicPrefix+"b") {
		t.Error("of the topics with the prefix, it serves others than those that it names")
	}
	if got := all.list(); !slices.Equal(got, []string{ServedTopicPrefix + "a"}) || len(all.foreign()) != 0 {
		t.Errorf("names %v, and leaves %v to others", got, all.foreign())
	}

	some := newTopics(&Config{Publisher: naming{other, []string{"b", "a"}, nil}, Routes: routes})
	for topic, want := range map[string][2]bool{
		"a": {true, true}, "b": {true, true}, "elsewhere": {false, true}, "typo": {false, false},
	} {
		equal(t, [2]bool{some.relays(topic), some.routed(topic)}, want, "topic %s: relayed and routed", topic)
	}
	if some.all() || !slices.Equal(some.list(), []string{"a", "b"}) ||
		!slices.Equal(some.foreign(), []string{"elsewhere"}) {
		t.Errorf("names %v, and leaves %v to others", some.list(), some.foreign())
	}

	none := newTopics(&Config{Publisher: naming{other, []string{}, nil}})
	if none.all() || none.relays("a") || none.routed("a") {
		t.Error("a publisher of no topic serves some")
	}
}
