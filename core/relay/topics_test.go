package relay

import (
	"context"
	"slices"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

type naming struct {
	core.Publisher
	listed, named []string
}

func (p naming) Topics() []string      { return p.listed }
func (p naming) NamedTopics() []string { return p.named }

func TestTopics(t *testing.T) {
	var zero topics
	if !zero.all() || !zero.relays("a") || zero.relays(core.ServedTopicPrefix+"a") ||
		len(zero.list())+len(zero.foreign) != 0 {
		t.Fatal("a publisher that names no topics does not serve all")
	}
	other := core.PublisherFunc(func(context.Context, core.Delivery) error { return nil })
	routes := map[string][]string{"order": {"b", "elsewhere"}}

	all := newTopics(
		&core.Config{Publisher: naming{other, nil, []string{"x", core.ServedTopicPrefix + "a"}}, Routes: routes},
	)
	if !all.all() || !all.relays("b") || !all.relays(core.ServedTopicPrefix+"a") ||
		all.relays(core.ServedTopicPrefix+"b") {
		t.Error("of the topics with the prefix, it serves others than those that it names")
	}
	if got := all.list(); !slices.Equal(got, []string{core.ServedTopicPrefix + "a"}) || len(all.foreign) != 0 {
		t.Errorf("names %v, and leaves %v to others", got, all.foreign)
	}

	some := newTopics(&core.Config{Publisher: naming{other, []string{"b", "a"}, nil}, Routes: routes})
	for topic, want := range map[string]bool{"a": true, "b": true, "elsewhere": false} {
		equal(t, some.relays(topic), want, "topic %s is relayed", topic)
	}
	if some.all() || !slices.Equal(some.list(), []string{"a", "b"}) ||
		!slices.Equal(some.foreign, []string{"elsewhere"}) {
		t.Errorf("names %v, and leaves %v to others", some.list(), some.foreign)
	}

	none := newTopics(&core.Config{Publisher: naming{other, []string{}, nil}})
	if none.all() || none.relays("a") {
		t.Error("a publisher of no topic serves some")
	}
}
