package outboxtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

// Match selects deliveries. Empty fields match everything.
type Match struct {
	ID, Type, Topic, Key, AggregateType, AggregateID, TenantID string
	// Where must return true too, if it is set.
	Where func(core.Delivery) bool
}

// Matches reports whether m selects d.
func (m Match) Matches(d core.Delivery) bool {
	return matches(m.ID, d.ID) && matches(m.Type, d.Type) && matches(m.Topic, d.Topic) && matches(m.Key, d.Key) &&
		matches(m.AggregateType, d.AggregateType) && matches(m.AggregateID, d.AggregateID) &&
		matches(m.TenantID, d.TenantID) &&
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

// RequirePublished returns the one event that p accepted and m selects. It fails the test if there
// is none or more than one.
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

// RequireNotPublished fails the test if p accepted an event that m selects.
func RequireNotPublished(t testing.TB, p *Publisher, m Match) {
	t.Helper()
	for _, d := range p.Accepted() {
		if m.Matches(d) {
			t.Fatalf("outboxtest: an event with %s was published:%s", m, describe([]core.Delivery{d}))
		}
	}
}

// RequireNothingRecorded fails the test if any of the models still has recorded events. Call it
// after the transaction that stores the models. It finds a Recorder whose events no adapter took:
// the outbox was not installed on the *gorm.DB or *bun.DB that stored the model, or the model was
// not stored at all. A model that embeds no Recorder fails the test too.
func RequireNothingRecorded(t testing.TB, models ...any) {
	t.Helper()
	for _, m := range models {
		r, ok := core.RecorderOf(m)
		if !ok {
			t.Fatalf("outboxtest: %T embeds no core.Recorder: give a pointer to the model", m)
		}
		events := r.Recorded()
		if len(events) == 0 {
			continue
		}
		types := make([]string, len(events))
		for i, e := range events {
			types[i] = e.Type
		}
		t.Fatalf("outboxtest: %d events of this %T still wait (%q): nothing took them when the model was stored; is "+
			"the outbox installed on the database handle that stored it "+
			"(db.Use(plugin) of GORM, outbox.DB() of Bun), did a method of the ORM store it (no plugin sees raw SQL), "+
			"and did the transaction commit?", len(events), m, types)
	}
}

// describe lists deliveries without their payloads, for a message.
func describe(ds []core.Delivery) string {
	if len(ds) == 0 {
		return " none"
	}
	var b strings.Builder
	for _, d := range ds {
		fmt.Fprintf(&b, "\n\tid=%s type=%q topic=%q key=%q key_seq=%d attempt=%d", d.ID, d.Type, d.Topic, d.Key,
			d.KeySeq, d.Attempt)
	}
	return b.String()
}
