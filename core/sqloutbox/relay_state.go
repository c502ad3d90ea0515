package sqloutbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core"
)

const (
	maxStopped   = 100  // destinations in the state of a relay
	maxStateText = 1000 // bytes of an error in it
)

// relayState is core.RelayState as the column state of the relays has it.
type relayState struct {
	Stopped []stoppedDestination `json:"stopped,omitempty"`
	Stuck   int                  `json:"stuck,omitempty"`
	HotFull bool                 `json:"hot_full,omitempty"`
	PollErr string               `json:"poll_error,omitempty"`
}

type stoppedDestination struct {
	Topic    string `json:"topic"`
	Micros   int64  `json:"us"` // since it was stopped
	Failures int    `json:"failures,omitempty"`
	Stuck    int    `json:"stuck,omitempty"`
	Err      string `json:"error,omitempty"`
}

func encodeState(s core.RelayState) (string, error) {
	state := relayState{Stuck: s.Stuck, HotFull: s.HotFull, PollErr: stateText(s.PollErr)}
	for _, d := range s.Stopped[:min(len(s.Stopped), maxStopped)] {
		state.Stopped = append(state.Stopped, stoppedDestination{
			Topic: d.Topic, Micros: time.Since(d.Since).Microseconds(), Failures: d.Failures, Stuck: d.Stuck,
			Err: stateText(d.Err),
		})
	}
	text, err := json.Marshal(state)
	return asciiJSON(string(text)), err
}

// asciiJSON escapes what is not ASCII, so that a connection of any character set can store it.
func asciiJSON(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

func stateText(err error) string {
	if err == nil {
		return ""
	}
	return clean(core.ErrorText(err), maxStateText)
}

// decodeState reads the state of a relay that was seen at that time. What cannot be read is left
// out, because it must not hide the relays.
func decodeState(text string, seen time.Time) (s core.RelayState) {
	var state relayState
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		return s
	}
	s.Stuck, s.HotFull = state.Stuck, state.HotFull
	if state.PollErr != "" {
		s.PollErr = errors.New(state.PollErr)
	}
	for _, d := range state.Stopped {
		s.Stopped = append(s.Stopped, core.StoppedDestination{
			Topic: d.Topic, Since: seen.Add(-time.Duration(d.Micros) * time.Microsecond), Failures: d.Failures,
			Stuck: d.Stuck, Err: errors.New(d.Err),
		})
	}
	return s
}
