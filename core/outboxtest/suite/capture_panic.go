package suite

import (
	"context"
	"maps"
	"testing"
)

// The notes of rows whose On function does not return its event.
const (
	notePanics        = "the On function panics"
	noteEnds          = "the On function ends its goroutine"
	notePayloadPanics = "the payload panics"
)

// panickingPayload is the payload of an event that cannot be stored.
type panickingPayload struct{}

// MarshalJSON implements json.Marshaler.
func (panickingPayload) MarshalJSON() ([]byte, error) { panic(notePayloadPanics) }

// capturePanics runs statements after whose execution a function of the program panics or ends its
// goroutine. That goes on, and the rows are not committed without their events, even if the program
// recovers within the transaction. Statements after it work.
func capturePanics(t *testing.T, h CaptureHarness) {
	f := &captureFixture{T: t, CaptureORM: h.Open(t)}
	for _, note := range []string{notePanics, noteEnds, notePayloadPanics} {
		for _, inside := range []bool{false, true} {
			for _, of := range []func(m captureModels) CaptureStatement{
				func(m captureModels) CaptureStatement {
					return CaptureStatement{Do: CaptureCreate, Models: m.fresh("d")}
				},
				func(m captureModels) CaptureStatement {
					return CaptureStatement{Do: CaptureCreate, Models: m.fresh("d", "e"), Slice: true}
				},
				func(m captureModels) CaptureStatement {
					return CaptureStatement{Do: CaptureUpdate, ByKey: true, Models: m.loaded("b")}
				},
				func(captureModels) CaptureStatement {
					return CaptureStatement{Do: CaptureUpdate, Where: &CaptureWhere{
						Text: "note = 'old'", Holds: func(r CaptureRow) bool { return r.Note == oldNote },
					}}
				},
			} {
				s := of(captureModels{rows: f.reset(false, captureStock(false)...)})
				if s.Mapped = true; s.Do == CaptureUpdate {
					s.Set, s.Note = CaptureSetNote, note
				}
				for i := range s.Models {
					s.Models[i].Note = note
				}
				f.panics(s, note, inside)
			}
		}
	}
}

// panics runs a statement in whose events a function does not return. If inside is set, the program
// recovers from a panic within the transaction, and goes on.
func (f *captureFixture) panics(s CaptureStatement, note string, inside bool) {
	f.Helper()
	before := f.byName(s.Own)
	var recovered any
	var err error
	returned := make(chan bool, 1)
	go func() {
		done := false
		defer func() {
			if !done {
				recovered = recover()
			}
			returned <- done
		}()
		err = f.RunInTx(f.Context(), func(ctx context.Context) error {
			if inside {
				defer func() { recovered = recover() }()
			}
			_, err := f.Exec(ctx, s)
			return err
		})
		done = true
	}()
	done := <-returned
	switch {
	case note == noteEnds && done:
		f.Errorf("the goroutine did not end: %v: %s", err, s)
	case note != noteEnds && recovered != note:
		f.Errorf("recovered %v, want %q: %v: %s", recovered, note, err, s)
	case note != noteEnds && inside && err == nil:
		f.Errorf("the transaction has committed: %s", s)
	}
	events, eventsErr := f.Events(f.Context())
	f.must(eventsErr)
	if after := f.byName(s.Own); !maps.Equal(before, after) || len(events) > 0 {
		f.Errorf("%s (recovered inside: %v): %s\nbefore: %+v\nafter:  %+v\nevents: %s", note, inside, s, before, after,
			describeEvents(events))
	}
}
