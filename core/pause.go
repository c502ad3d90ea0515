package core

import (
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
)

const maxPauseAhead = 10 * 366 * 24 * time.Hour

// maxSettings is how many pauses hold at most, and how many rates: relays read no more.
const maxSettings = 1000

// Actions of the audit rows that Pause and Resume write. The rows name no event. Their topic is the
// request's Topic, or AuditTenant and the tenant, or empty for everything.
const (
	AuditPause  = "pause"
	AuditResume = "resume"
	// AuditTenant comes before the tenant, in place of a topic.
	AuditTenant = "tenant:"
)

// PauseRequest selects the events to pause. Set one of All, Topic and Tenant, and Actor and Reason.
type PauseRequest struct {
	All    bool   // every destination
	Topic  string // one destination, at most 249 bytes
	Tenant string // the events of one tenant (Event.TenantID), at most 64 bytes
	// Until is the end of the pause, by the database's clock, at most 10 years ahead. Zero: it
	// holds until Resume.
	Until  time.Time
	Actor  string // the person; required, at most 255 bytes
	Reason string // required, at most 1024 bytes
	DryRun bool   // checks the request and changes nothing
}

// ResumeRequest selects the pause to end. Set one of All, Topic and Tenant, and Actor and Reason.
// All ends the pause of everything, and leaves the pauses of single topics and tenants.
type ResumeRequest struct {
	All    bool
	Topic  string
	Tenant string
	Actor  string // the person; required, at most 255 bytes
	Reason string // required, at most 1024 bytes
	DryRun bool   // checks and answers the request, and changes nothing
}

// Pause is a pause that holds. All times are by the database's clock.
type Pause struct {
	All    bool          `json:"all"`                 // every destination
	Topic  string        `json:"topic,omitempty"`     // the destination, or empty
	Tenant string        `json:"tenant_id,omitempty"` // the tenant, or empty
	Since  time.Time     `json:"since"`
	Until  time.Time     `json:"until,omitzero"` // zero: until Resume
	Actor  string        `json:"actor"`
	Reason string        `json:"reason"`
	Left   time.Duration `json:"-"` // until Until; 0 without one
}

// Covers reports whether the pause holds back the events of the topic and the tenant. The tenant is
// empty for events without one: only a pause of their topic or of everything covers them.
func (p Pause) Covers(topic, tenant string) bool {
	switch {
	case p.All:
		return true
	case p.Tenant != "":
		return p.Tenant == tenant
	}
	return p.Topic == topic
}

// checkPause validates the target, actor and reason of a pause, or of its end.
func checkPause(req ResumeRequest) error {
	switch {
	case req.Topic != "" && req.Tenant != "", req.All && req.Topic+req.Tenant != "":
		return invalid("set only one of {All}, {Topic} and {Tenant}")
	case !req.All && req.Topic+req.Tenant == "":
		return invalid("set {All}, {Topic} or {Tenant}")
	}
	// Events of other programs may have a topic that a new event may not have.
	if p := textcheck.Problem(req.Topic, maxTopic, false); p != "" {
		return invalid("{Topic} %s", p)
	}
	if p := textcheck.Problem(req.Tenant, maxTenant, false); p != "" {
		return invalid("{Tenant} %s", p)
	}
	return checkWho(req.Actor, req.Reason)
}
