package inbox

import (
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
)

// Key names one event for one handler of one consumer. It is compared byte by byte.
type Key struct {
	Consumer string // at most 128 bytes
	Handler  string // at most 128 bytes
	Tenant   string // at most 64 bytes; may be empty
	EventID  string // at most 255 bytes
}

// ErrInvalidKey: a part of a Key is empty, too long, not UTF-8, or has a control character. The
// text names every problem.
var ErrInvalidKey = errors.New("inbox: invalid key")

// Validate reports every problem of k at once. The error wraps ErrInvalidKey.
func (k Key) Validate() error {
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
		if p := textcheck.Problem(part.text, part.limit, part.required); p != "" {
			problems = append(problems, fmt.Errorf("%s %s", part.name, p))
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("%w: %w", ErrInvalidKey, errors.Join(problems...))
	}
	return nil
}

// Event is the part of an event that a Store keeps: its key and where it came from. Only the key
// decides whether two events are the same. Any other text that is too long for its column is cut.
type Event struct {
	Key
	Type                       string
	Version                    int
	AggregateType, AggregateID string

	// Topic, PartitionKey and KeySeq give the event its place in the order of its key, for Advance.
	// KeySeq is 0 for an event without a place.
	Topic, PartitionKey string
	KeySeq              int64

	// Partition and Offset say where in Topic the event was read, if Located.
	Partition int32
	Offset    int64
	Located   bool
}
