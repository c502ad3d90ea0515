package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/internal/textdiff"
)

// AuditRelease is the action of the audit rows that Release writes, one for each message.
const AuditRelease = "release"

// ReleaseRequest selects the parked messages of a consumer to release.
type ReleaseRequest struct {
	// Consumer is the owner of the poison queue From. Its inbox is beside the outbox.
	Consumer string
	// Cache is the consumers' cache, if they have one.
	Cache inbox.Cache

	inbox.ReleaseRequest
}

// Release delivers parked messages again: see inbox.Inbox.Release, also for what happens if it
// stops or is killed (no message is lost). Before each message is sent, it writes an audit row with
// the event and the topic, and with the difference if Edit has changed the payload. A dry run
// writes nothing. In a database of consumers without an outbox there is no audit: the inbox keeps
// actor and reason until the message is processed, and Edit is refused.
//
// Without an inbox, or with Edit without an audit, the error wraps core.ErrNoTables. A request that
// lacks something is refused with an error wrapping inbox.ErrInvalidRequest or
// core.ErrInvalidRequest.
func (a *API) Release(ctx context.Context, req ReleaseRequest) (inbox.Released, error) {
	store, ok := a.beside.Inbox.(inbox.Store)
	if !ok || a.beside.Transactor == nil {
		return inbox.Released{}, noTables("an inbox")
	}
	if err := req.Validate(); err != nil {
		return inbox.Released{}, err
	}
	if !req.DryRun {
		if err := checkWho(req.Actor, req.Reason); err != nil {
			return inbox.Released{}, err
		}
	}
	in, err := inbox.New(inbox.Config{
		Consumer: req.Consumer, Store: store, Transactor: a.beside.Transactor, Cache: req.Cache,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return inbox.Released{}, fmt.Errorf("%w: %w", inbox.ErrInvalidRequest, err)
	}
	before := req.Before
	req.Before = func(ctx context.Context, p inbox.Parked, payload []byte) error {
		if before != nil {
			if err := before(ctx, p, payload); err != nil {
				return err
			}
		}
		record, detail := releaseRecord(req, p, payload)
		err := a.store.RecordAudit(ctx, detail, record)
		if errors.Is(err, core.ErrNoTables) && payload == nil {
			return nil // the row of the inbox has actor and reason
		}
		return err
	}
	return in.Release(ctx, req.ReleaseRequest)
}

// releaseRecord returns the audit row of a message.
func releaseRecord(req ReleaseRequest, p inbox.Parked, payload []byte) (r core.AuditRecord, detail string) {
	h := p.Message.Headers
	r = core.AuditRecord{
		Action: AuditRelease, Actor: req.Actor, Reason: req.Reason, EventID: p.Key.EventID, Topic: p.Topic,
	}
	r.RowID, _ = core.ParseRowID(h[core.HeaderRowID]) // zero for a message of another program
	if payload == nil {
		return r, ""
	}
	return r, auditSubject(h[core.HeaderAggregateType], h[core.HeaderAggregateID]) + tenantLine(p.Key.Tenant) +
		textdiff.Payloads(p.Message.Payload, payload)
}

// PayloadDiff returns the difference between two payloads, as Release and Edit store it: lines that
// begin with "- " were removed, and lines with "+ " added. It is empty for equal payloads.
func PayloadDiff(before, after []byte) string { return textdiff.Payloads(before, after) }
