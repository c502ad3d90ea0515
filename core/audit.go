package core

import (
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/who"
)

// AuditResetKeys is the action of the audit row that ResetKeys writes. The row names no event.
const AuditResetKeys = "reset-keys"

// AuditQuery selects audit rows.
type AuditQuery struct {
	RowID  RowID // of one row; zero: all
	Before int64 // keyset paging: the last No of the page before; 0: from the newest
	Limit  int   // default 100, at most 1000
}

// AuditRecord records a change that a person made to a row. It is written in the transaction of the
// change.
type AuditRecord struct {
	No      int64     `json:"no"`     // ascending
	At      time.Time `json:"at"`     // by the database's clock
	Action  string    `json:"action"` // such as "redrive", "discard", "replay" or AuditResetKeys
	Actor   string    `json:"actor"`
	Reason  string    `json:"reason"`
	RowID   RowID     `json:"row_id,omitzero"`
	EventID string    `json:"event_id,omitempty"`
	Topic   string    `json:"topic,omitempty"`
	NewID   RowID     `json:"new_id,omitzero"` // the row that redrive appended to the key, or that replays RowID
}

func checkWho(actor, reason string) error {
	if problem := who.Problem(actor, reason); problem != "" {
		return invalid(problem)
	}
	return nil
}
