package outboxtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

// Match describes deliveries. Empty fields match everything.
type Match struct {
	ID, Type, Topic, Key, AggregateType, AggregateID, TenantID string
	// Where, when set, must return true as well.
	Where func(core.Delivery) bool
}

// Matches reports whether d is described by m.
func (m Match) Matches(d core.Delivery) bool {
	return matches(m.ID, d.ID) && matches(m.Type, d.Type) && matches(m.Topic, d.Topic) && matches(m.Key, d.Key) &&
		matches(m.AggregateType, d.AggregateType) && matches(m.AggregateID, d.AggregateID) && matches(m.TenantID, d.TenantID) &&
		(m.Where == nil || m.Where(d))
}

// String names the fields that are set.
func (m Match) String() string {
	var b strings.Builder
	for _, f := range [...]struct{ name, value string }{
		{"id", m.ID},
		{"type", m.Type},
		{"topic", m.Topic},
		{"key", m.Key},
		{"aggregate type", m.AggregateType},
		{"aggregate id", m.AggregateID},
		{"tenant", m.TenantID},
	} {
		if f.value != "" {
			fmt.Fprintf(&b, " %s=%q", f.name, f.value)
		}
	}
	if m.Where != nil {
		b.WriteString(" and a condition")
	}
	if b.Len() == 0 {
		return "any content"
	}
	return strings.TrimSpace(b.String())
}

// RequirePublished returns the one event that p accepted and m describes. It fails the test when there is none or more than one.
func RequirePublished(t testing.TB, p *Publisher, m Match) core.Delivery {
	t.Helper()
	accepted := p.Accepted()
	var found []core.Delivery
	for _, d := range accepted {
		if m.Matches(d) {
			found = append(found, d)
		}
	}
	switch len(found) {
	case 0:
		t.Fatalf("outboxtest: no event with %s was published; published were:%s", m, describe(accepted))
	case 1:
	default:
		t.Fatalf("outboxtest: %d events with %s were published, want one:%s", len(found), m, describe(found))
	}
	return found[0]
}

// RequireNotPublished fails the test when p accepted an event that m describes.
func RequireNotPublished(t testing.TB, p *Publisher, m Match) {
	t.Helper()
	for _, d := range p.Accepted() {
		if m.Matches(d) {
			t.Fatalf("outboxtest: an event with %s was published:%s", m, describe([]core.Delivery{d}))
		}
	}
}

// describe lists deliveries for a message, without their payloads.
func describe(ds []core.Delivery) string {
	if len(ds) == 0 {
		return " none"
	}
	var b strings.Builder
	for _, d := range ds {
		fmt.Fprintf(&b, "\n\tid=%s type=%q topic=%q key=%q key_seq=%d attempt=%d", d.ID, d.Type, d.Topic, d.Key, d.KeySeq, d.Attempt)
	}
	return b.String()
}
