package sqlonce

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// Inbox is the table of what the handlers of consumers did with events, and of the newest event of
// each key: what module inbox works with. Get it with Store.Inbox. It is safe for use by several
// goroutines.
//
// Begin, BeginBatch and Advance work in the caller's transaction, which begins with them, commits
// with the effects of the handler, and is rolled back after any error of theirs. The others are
// short transactions of their own.
type Inbox struct {
	s   *Store
	sql map[string]string
}

// Inbox returns the inbox tables of the Store.
func (s *Store) Inbox() *Inbox { return &Inbox{s: s, sql: inboxStatements(s.names)} }

// InboxKey names one event for one handler of one consumer. It is compared byte by byte.
type InboxKey struct {
	Consumer string // at most 128 bytes
	Handler  string // at most 128 bytes
	Tenant   string // at most 64 bytes; may be empty
	EventID  string // at most 255 bytes
}

// ErrInvalidInboxKey: a part of an InboxKey is empty, too long, not UTF-8, or has a control
// character. The text names every problem.
var ErrInvalidInboxKey = errors.New("sqlonce: invalid inbox key")

// Validate names every problem of k at once. The error wraps ErrInvalidInboxKey.
func (k InboxKey) Validate() error {
	var problems []error
	for _, part := range []struct {
		name, text string
		limit      int
		required   bool
	}{
		{"consumer", k.Consumer, 128, true},
		{"handler", k.Handler, 128, true},
		{"tenant", k.Tenant, 64, false},
		{"event id", k.EventID, 255, true},
	} {
		if p := textProblem(part.text, part.limit, part.required); p != "" {
			problems = append(problems, fmt.Errorf("%s %s", part.name, p))
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("%w: %w", ErrInvalidInboxKey, errors.Join(problems...))
	}
	return nil
}

func textProblem(s string, limit int, required bool) string {
	switch {
	case s == "" && required:
		return "is empty"
	case len(s) > limit:
		return fmt.Sprintf("has %d bytes, more than %d", len(s), limit)
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case strings.IndexFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f }) >= 0:
		return "has a control character"
	}
	return ""
}

// InboxEvent is an event and where it came from. Only its key decides; what else does not fit into
// its column is cut.
type InboxEvent struct {
	InboxKey
	Type                       string
	Version                    int
	AggregateType, AggregateID string

	// Topic, PartitionKey and KeySeq place the event in its lane, for Advance. KeySeq is 0 for an
	// event without a lane.
	Topic, PartitionKey string
	KeySeq              int64

	// Partition and Offset say where in Topic the event was read, if Located.
	Partition int32
	Offset    int64
	Located   bool
}

// InboxState says what is to be done with an event.
type InboxState uint8

// Answers of Begin.
const (
	// InboxFresh: the row says processed now, as soon as the transaction commits.
	InboxFresh InboxState = iota + 1
	// InboxProcessed: done before.
	InboxProcessed
	// InboxInProgress: a row that says so was written by something other than Begin, less than 15
	// minutes ago.
	InboxInProgress
	// InboxParked: it waits for a person.
	InboxParked
)

// String returns the name used in logs and metrics.
func (s InboxState) String() string {
	switch s {
	case InboxFresh:
		return "fresh"
	case InboxProcessed:
		return "processed"
	case InboxInProgress:
		return "in_progress"
	case InboxParked:
		return "parked"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Status of a row of the inbox.
const (
	inboxReceived   = 0
	inboxProcessing = 1
	inboxProcessed  = 2
	inboxFailed     = 3
	inboxParked     = 4
)

// processingStale is when a row that says PROCESSING is no longer believed.
const processingStale = 15 * time.Minute

// Begin writes the event as processed in tx, and says InboxFresh and which attempt this is; or it
// says what was there. While another transaction works on the same event it waits for the end of
// that. A new event costs one statement.
func (i *Inbox) Begin(ctx context.Context, tx core.Tx, e InboxEvent) (state InboxState, attempt int, err error) {
	const what = "inbox"
	if err := e.Validate(); err != nil {
		return 0, 0, err
	}
	if err := i.s.join(tx); err != nil {
		return 0, 0, wrap(what, err)
	}
	state, attempt, err = i.begin(ctx, tx, e)
	return state, attempt, wrap(what, txError(err))
}

func (i *Inbox) begin(ctx context.Context, tx core.Tx, e InboxEvent) (InboxState, int, error) {
	insert := "insert"
	if mariadb, err := i.s.guarded(ctx, tx); err != nil {
		return 0, 0, err
	} else if mariadb {
		insert = "insert_mariadb"
	}
	for range vanished {
		switch n, err := tx.Exec(ctx, i.sql[insert], e.args()...); {
		case err != nil:
			return 0, 0, err
		case n == 1:
			return InboxFresh, 1, nil
		case n == 0 && i.s.dialect == core.MySQL:
			return 0, 0, fmt.Errorf("%w: the database has ended it", core.ErrTxAborted)
		}
		state, attempt, err := i.see(ctx, tx, e.InboxKey)
		if err != nil || state != 0 {
			return state, attempt, err
		}
	}
	return 0, 0, fmt.Errorf("%w: %w", core.ErrTxAborted, errVanished)
}

// see locks the row of a key, decides, and takes it where that is possible. It returns 0 when there
// is no row.
func (i *Inbox) see(ctx context.Context, q sqlkit.Querier, k InboxKey) (InboxState, int, error) {
	var r inboxRow
	found, err := sqlkit.FirstRow(ctx, q, i.sql["see"], k.args(), &r.status, &r.attempts, &r.left)
	if err != nil || !found {
		return 0, 0, err
	}
	return i.decide(ctx, q, k, r)
}

// inboxRow is what decides about an event.
type inboxRow struct {
	status, attempts int
	left             int64 // microseconds from now to its last change: negative
}

func (i *Inbox) decide(ctx context.Context, q sqlkit.Querier, k InboxKey, r inboxRow) (InboxState, int, error) {
	switch {
	case r.status == inboxProcessed:
		return InboxProcessed, r.attempts, nil
	case r.status == inboxParked:
		return InboxParked, r.attempts, nil
	case r.status == inboxProcessing && time.Duration(-r.left)*time.Microsecond < processingStale:
		return InboxInProgress, r.attempts, nil
	}
	n, err := q.Exec(ctx, i.sql["take"], k.args()...)
	if err == nil && n != 1 {
		err = fmt.Errorf("%w: the row of the event was not there any more", core.ErrTxAborted)
	}
	return InboxFresh, r.attempts + 1, err
}

// MaxInboxTopic and MaxInboxPartitionKey are how many bytes the table keeps for Advance. Of a
// longer text, or one that is not plain, it keeps the SHA-256.
const (
	MaxInboxTopic        = 249
	MaxInboxPartitionKey = 255
)

// Advance moves the newest event that the handler has processed of the event's tenant, topic and
// key up to this one, in tx, and reports whether it was newer. It waits for other transactions that
// do so. An event without a key or a KeySeq is always newer.
func (i *Inbox) Advance(ctx context.Context, tx core.Tx, e InboxEvent) (newer bool, err error) {
	const what = "inbox key"
	if e.KeySeq == 0 || e.PartitionKey == "" {
		return true, nil
	}
	if err := e.Validate(); err != nil {
		return false, err
	}
	if err := i.s.join(tx); err != nil {
		return false, wrap(what, err)
	}
	key := []any{
		e.Consumer, e.Handler, e.Tenant, laneText(e.Topic, MaxInboxTopic),
		laneText(e.PartitionKey, MaxInboxPartitionKey),
	}
	if i.s.dialect != core.MySQL {
		n, err := tx.Exec(ctx, i.sql["advance"], append(key, e.KeySeq)...)
		return n == 1, wrap(what, txError(err))
	}
	// MySQL does not tell apart what its upsert did. The first statement makes sure that there is a
	// row, an older one, and locks it. An UPDATE that finds no row would lock the gap, and two of
	// them deadlock.
	if _, err := tx.Exec(ctx, i.sql["key"], append(key, e.KeySeq-1)...); err != nil {
		return false, wrap(what, txError(err))
	}
	n, err := tx.Exec(ctx, i.sql["advance"], append([]any{e.KeySeq}, append(key, e.KeySeq)...)...)
	return n == 1, wrap(what, txError(err))
}

// laneText makes a part of a lane, which anybody may have written, fit for its column, so that
// different texts stay different: no plain text begins like its hash.
func laneText(s string, limit int) string {
	if textProblem(s, limit, false) == "" {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "\x1fsha256:" + hex.EncodeToString(sum[:])
}

func (k InboxKey) args() []any { return []any{k.Consumer, k.Handler, k.Tenant, k.EventID} }

// args are the parameters of an insert.
func (e InboxEvent) args() []any {
	args := append(e.InboxKey.args(), column(e.Type, 128), e.Version, column(e.AggregateType, 64),
		column(e.AggregateID, 128),
		column(e.PartitionKey, 255))
	if e.KeySeq == 0 {
		args = append(args, nil)
	} else {
		args = append(args, e.KeySeq)
	}
	args = append(args, column(e.Topic, 249))
	if !e.Located {
		return append(args, nil, nil)
	}
	return append(args, e.Partition, e.Offset)
}

// column makes a text fit for a column that only describes.
func column(s string, limit int) any { return orNil(fit(s, limit)) }

func fit(s string, limit int) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "?")
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
