package contract

import (
	"bytes"
	"fmt"
	"mime"
	"strconv"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// Decode returns the data of a message as a T, whatever declared version arrived: it reads the
// version that the message names, and calls the functions of Spec.Older up to T. A message without
// a version is read as version 1. A message without a type counts as this type. If T has a method
// Validate() error, Decode calls it.
//
// The data is JSON. The error wraps ErrUnknownType, ErrNewerVersion, ErrOlderVersion or
// ErrInvalidData, or comes from a function of Spec.Older, and is marked with a class.
func (e *EventType[T]) Decode(m Message) (T, error) {
	var none T
	got, err := m.read()
	if err != nil {
		return none, err
	}
	if got.eventType != "" && got.eventType != e.info.Type {
		return none, core.Permanent(fmt.Errorf("%w: %.128q, want %q", ErrUnknownType, got.eventType, e.info.Type))
	}
	return e.decode(got.version, got.payload)
}

func (e *EventType[T]) decode(number int, payload []byte) (T, error) {
	var none T
	first, last := e.versions[0].number, e.info.Version
	switch {
	case number > last:
		return none, core.UnavailableForKey(fmt.Errorf("%w: %s is version %d, this program reads up to %d: deploy it "+
			"with the newer declaration", ErrNewerVersion, e.info.Type, number, last))
	case number < first:
		return none, core.Permanent(fmt.Errorf("%w: %s is version %d, this program reads from %d: declare it in "+
			"Spec.Older, and redrive the event", ErrOlderVersion, e.info.Type, number, first))
	}
	invalid := func(err error) error {
		return core.Permanent(fmt.Errorf("%w: %s, version %d: %w", ErrInvalidData, e.info.Type, number, err))
	}
	v := e.versions[number-first]
	if err := v.check.check(payload); err != nil {
		return none, invalid(err)
	}
	data, err := v.decode(payload)
	if err != nil {
		return none, invalid(err)
	}
	for ; v.up != nil; v = e.versions[v.number+1-first] {
		if data, err = v.up(data); err != nil {
			err = fmt.Errorf("contract: %s, from version %d to %d: %w", e.info.Type, v.number, v.number+1, err)
			if _, marked := core.ClassOf(err); !marked {
				err = core.Permanent(err)
			}
			return none, err
		}
	}
	result := data.(T)
	if err := validate(&result); err != nil {
		return none, invalid(err)
	}
	return result, nil
}

// isJSON reports whether a content type denotes JSON. None counts as JSON.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (t == "application/json" || t == "text/json" || strings.HasSuffix(t, "+json"))
}

// received has the headers and the payload of a message, as read.
type received struct {
	eventType string
	version   int
	payload   []byte
}

func (m Message) read() (received, error) {
	m.Headers = core.UnpackFields(m.Headers)
	got, contentType, err := m.unwrap()
	if err != nil {
		return got, core.Permanent(fmt.Errorf("%w: %w", ErrInvalidData, err))
	}
	if !isJSON(contentType) {
		return got, core.Permanent(fmt.Errorf("%w: the content type is %.128q, and only JSON is read", ErrInvalidData,
			contentType))
	}
	switch text := m.Headers[core.HeaderSchemaVersion]; text {
	case "", "0":
		got.version = 1
	default:
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return got, core.Permanent(fmt.Errorf("%w: header %s is %.64q", ErrInvalidData,
				core.HeaderSchemaVersion, text))
		}
		got.version = int(n)
	}
	if got.payload = bytes.TrimSpace(got.payload); len(got.payload) == 0 {
		return got, core.Permanent(fmt.Errorf("%w: the payload is empty", ErrInvalidData))
	}
	return got, nil
}
