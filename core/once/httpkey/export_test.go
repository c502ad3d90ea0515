package httpkey

// Problems returns the names of all problems.
func Problems() (names []string) {
	for _, p := range []problem{
		keyMissing, keyInvalid, bodyUnreadable, bodyConsumed, inFlight, abandoned, notKept, bodyTooLarge,
		keyReused, scopeMissing, failed, storeUnavailable,
	} {
		names = append(names, "idempotency-"+p.name)
	}
	return names
}

// ErrConsumed is the error for a body that an outer handler has read.
var ErrConsumed = errConsumed

// ParseKey reads a header.
var ParseKey = parseKey

// ErrInvalidKey is its error.
var ErrInvalidKey = errInvalidKey
