package ops

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core/once"
)

// IdempotencyKeys are the scopes of idempotency keys, for HTTP requests and for other work.
type IdempotencyKeys struct {
	// There: the database has a table of keys. Otherwise Scopes is empty. Keys in Redis are not in
	// reach.
	There  bool           `json:"there"`
	Scopes []once.Backlog `json:"scopes,omitempty"` // by scope
}

// IdempotencyKeys counts the CountLimit keys that expire last.
func (a *API) IdempotencyKeys(ctx context.Context) (k IdempotencyKeys, err error) {
	b := a.beside
	if b.Keys == nil || b.noKeys.holds() {
		return k, nil
	}
	list, err := b.Keys.Backlog(ctx, CountLimit)
	if k.There, err = b.noKeys.there(err); k.There {
		k.Scopes = list
	}
	return k, err
}

// KeyPage is a page of idempotency keys.
type KeyPage struct {
	// There: the database has a table of keys. Otherwise the page is empty.
	There bool
	once.KeyPage
}

// ListIdempotencyKeys lists keys, without their results, the last to expire first. A query that
// makes no sense is refused with an error wrapping once.ErrInvalidRequest.
func (a *API) ListIdempotencyKeys(ctx context.Context, q once.KeyQuery) (page KeyPage, err error) {
	b := a.beside
	if b.Keys == nil || b.noKeys.holds() {
		return page, nil
	}
	found, err := b.Keys.ListKeys(ctx, q)
	if page.There, err = b.noKeys.there(err); page.There {
		page.KeyPage = found
	}
	return page, err
}
