package ops

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
)

// Pause stops the events of a topic, or of all topics, on every relay of the table. It is that of
// core.Outbox.
func (a *API) Pause(ctx context.Context, req core.PauseRequest) error {
	return a.outbox.Pause(ctx, req)
}

// Resume ends a pause, and reports whether there was one. It is that of core.Outbox.
func (a *API) Resume(ctx context.Context, req core.ResumeRequest) (resumed bool, err error) {
	return a.outbox.Resume(ctx, req)
}

// Pauses returns what is paused now. It is that of core.Outbox.
func (a *API) Pauses(ctx context.Context) ([]core.Pause, error) { return a.outbox.Pauses(ctx) }
