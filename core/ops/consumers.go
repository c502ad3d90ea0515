package ops

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
)

// MaxMessages is how many messages one call of RedriveMessages or DiscardMessages changes.
const MaxMessages = 500

// Consumers has the handlers whose inbox is in reach.
type Consumers struct {
	// There: the database has an inbox. Otherwise Handlers is empty.
	There    bool            `json:"there"`
	Handlers []inbox.Backlog `json:"handlers,omitempty"` // by consumer and handler
}

// Consumers counts the failures of each handler, up to CountLimit of each consumer and status. It
// takes one statement, and a few for each consumer that has failed with something.
func (a *API) Consumers(ctx context.Context) (c Consumers, err error) {
	b := a.beside
	if b.Inbox == nil || b.noInbox.holds() {
		return c, nil
	}
	handlers, err := b.Inbox.Backlog(ctx, CountLimit)
	if c.There, err = b.noInbox.there(err); c.There {
		c.Handlers = handlers
	}
	return c, err
}

// Messages is a page of messages that consumers have failed with.
type Messages struct {
	// There: the database has an inbox. Otherwise the page is empty.
	There bool
	inbox.FailedPage
}

// Messages lists the messages that consumers have failed with: failing and dead messages, and
// messages that a person has redriven or discarded. The inbox has no payloads. A query that makes
// no sense is refused with an error wrapping inbox.ErrInvalidRequest.
func (a *API) Messages(ctx context.Context, q inbox.FailedQuery) (m Messages, err error) {
	b := a.beside
	if b.Inbox == nil || b.noInbox.holds() {
		return m, nil
	}
	page, err := b.Inbox.ListFailed(ctx, q)
	if m.There, err = b.noInbox.there(err); m.There {
		m.FailedPage = page
	}
	return m, err
}

// MessageRequest selects messages of consumers for a person's change. All fields are required.
type MessageRequest struct {
	Keys   []inbox.Key // at most MaxMessages
	Actor  string      // the person; kept with the message
	Reason string      // kept with the message
}

// RedriveMessages lets dead messages be processed, with fresh attempts, when they are delivered
// again. It delivers nothing, because the inbox has no payloads. It returns how many messages
// changed; the others were not dead. It does not change an inbox.Config.Cache: if consumers have
// one, call inbox.Inbox.Redrive instead. Without an inbox the error wraps core.ErrNoTables. A
// request that lacks something is refused with an error wrapping core.ErrInvalidRequest.
func (a *API) RedriveMessages(ctx context.Context, req MessageRequest) (changed int, err error) {
	return a.changeMessages(ctx, AuditRedriveMessage, req, inbox.Desk.Redrive)
}

// DiscardMessages ends dead messages: they are never processed, and acknowledged when they are
// delivered again. The rest is as for RedriveMessages, except that a Cache needs no change.
func (a *API) DiscardMessages(ctx context.Context, req MessageRequest) (changed int, err error) {
	return a.changeMessages(ctx, AuditDiscardMessage, req, inbox.Desk.Discard)
}

func (a *API) changeMessages(ctx context.Context, action string, req MessageRequest,
	do func(d inbox.Desk, ctx context.Context, keys []inbox.Key, actor, reason string) (int, error),
) (changed int, err error) {
	switch {
	case a.beside.Inbox == nil:
		return 0, noTables("an inbox")
	case len(req.Keys) == 0 || len(req.Keys) > MaxMessages:
		return 0, invalid("%d messages in one call: give 1 to %d", len(req.Keys), MaxMessages)
	}
	records := make([]core.AuditRecord, len(req.Keys))
	for i, k := range req.Keys {
		records[i] = core.AuditRecord{Action: action, Actor: req.Actor, Reason: req.Reason, EventID: k.EventID}
	}
	if err := a.record(ctx, records); err != nil {
		return 0, err
	}
	return do(a.beside.Inbox, ctx, req.Keys, req.Actor, req.Reason)
}
