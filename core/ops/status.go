package ops

import (
	"fmt"
	"slices"

	"github.com/ormoutbox/ormoutbox/core/internal/enum"
)

// Status is the state of an event in the table.
type Status uint8

// Statuses, as the column status has them. A claimed event has no status of its own: its
// Event.LeaseUntil is in the future.
const (
	StatusNew       Status = iota // not yet accepted by its destination
	StatusDone                    // accepted, or left to a reader of the log: see Event.ByLog
	StatusRetry                   // refused; it will be tried again
	StatusDead                    // given up
	StatusDiscarded               // ended by a person
)

var statusNames = []string{"new", "done", "retry", "dead", "discarded"}

// String returns the name of the status in lower case.
func (s Status) String() string { return enum.Name(statusNames, s, "status") }

// Open reports whether the event is still to be published.
func (s Status) Open() bool { return s == StatusNew || s == StatusRetry }

// MarshalText implements encoding.TextMarshaler.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Status) UnmarshalText(text []byte) error {
	v, err := ParseStatus(string(text))
	if err == nil {
		*s = v
	}
	return err
}

// ParseStatus returns the status with that name.
func ParseStatus(name string) (Status, error) {
	if i := slices.Index(statusNames, name); i >= 0 {
		return Status(i), nil
	}
	return 0, fmt.Errorf("ops: %.32q is no status: it is one of %v", name, statusNames)
}
