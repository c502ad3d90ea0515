package core

import (
	"context"
	"time"
)

// CleanupRequest selects the rows that Repository.Cleanup deletes.
type CleanupRequest struct {
	Keep          time.Duration // since DONE rows ended
	KeepDiscarded time.Duration // since DISCARDED rows ended
	Limit         int           // rows
	// Archive gets the rows before they are deleted, at most ArchiveRows of them at once. Nil: they
	// are deleted unseen.
	Archive func(ctx context.Context, rows []ArchivedEvent) error
}

// ArchiveRows is how many rows Retention.Archive gets at most in one call.
const ArchiveRows = 100

// ArchiveBytes is how many bytes of payload Retention.Archive gets at most in one call, unless it
// gets only one row.
const ArchiveBytes = 4 << 20

// ArchivedEvent is a row of the outbox that is about to be deleted, for Retention.Archive.
type ArchivedEvent struct {
	// ID is the same in every call with this row.
	ID    RowID
	Event Event // as it was published, with its payload and its headers
	// KeyID and KeySeq are the key of the row and its place in it. Both are zero without a key.
	KeyID  KeyID
	KeySeq int64
	// Discarded: a person ended the event by Discard, or redrove it under SkipDead, which gave it
	// another row. Otherwise a destination accepted it.
	Discarded bool
	// Attempts and LostClaims are copied from Claimed.
	Attempts   int
	LostClaims int
	ErrorCode  string // of the last failure; only if Discarded
	Error      string
	Receipt    string // see ReceiptPublisher
	ReplayOf   RowID  // the row that this row replays; zero: none
	// CreatedAt is when the row was inserted and EndedAt when it was published or discarded, both
	// by the database's clock.
	CreatedAt time.Time
	EndedAt   time.Time

	// Err is set if a part of the row cannot be read, because another program wrote it. Event lacks
	// that part, and the part is lost if Archive returns nil.
	Err error
}
