package inbox

import (
	"context"
	"time"
)

// ArchiveEvents is how many events Config.Archive gets at most in one call.
const ArchiveEvents = 100

// ArchivedEvent is an event that Config.Archive gets before Cleanup deletes it. The inbox has no
// payloads.
type ArchivedEvent struct {
	Key Key
	// Source is where the message was read: topic/partition/offset, or the topic alone. Empty: the
	// message did not say.
	Source string
	// Attempts is how often the event was tried.
	Attempts int
	// EndedAt is when the event was processed or discarded, by the clock of the database.
	EndedAt time.Time
	// Discarded: a person ended the event, and no handler processed it. Note is the actor and the
	// reason, as "ada: sent twice by mistake".
	Discarded bool
	Note      string
}

// Archiver is implemented by a Store that can show events before it deletes them. New refuses
// Config.Archive without it.
type Archiver interface {
	// Archive gives at most limit events that Cleanup would delete to fn, and deletes them if it
	// returns nil. It returns how many it deleted. It calls fn for each handler: if that fails, the
	// events of that handler stay, and those of the others go. No transaction is open while fn
	// runs.
	Archive(ctx context.Context, consumer string, keep time.Duration, limit int,
		fn func(ctx context.Context, events []ArchivedEvent) error) (deleted int, err error)
}

// cleanSome deletes a batch of events, and reports whether there may be more.
func (in *Inbox) cleanSome(ctx context.Context) (deleted int, more bool, err error) {
	if in.cfg.Archive == nil {
		return in.events.Delete(ctx, cleanupBatch, func(limit int) (int, error) {
			return in.cfg.Store.Cleanup(ctx, in.cfg.Consumer, in.cfg.Retention, limit)
		})
	}
	deleted, err = in.cfg.Store.(Archiver).Archive(ctx, in.cfg.Consumer, in.cfg.Retention, ArchiveEvents,
		in.archive.Call)
	return deleted, deleted > 0, err
}

// cleanKeys deletes a batch of keys of OnlyNewer, and reports whether there may be more.
func (in *Inbox) cleanKeys(ctx context.Context) (deleted int, more bool, err error) {
	return in.keys.Delete(ctx, cleanupBatch, func(limit int) (int, error) {
		return in.cfg.Store.CleanupKeys(ctx, in.cfg.Consumer, in.cfg.Retention, limit)
	})
}
