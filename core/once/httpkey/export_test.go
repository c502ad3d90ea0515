package httpkey

// Problems are all that there are.
func Problems() (names []string) {
	for _, p := range []problem{
		keyMissing, keyInvalid, bodyUnreadable, bodyConsumed, inFlight, abandoned, notKept, bodyTooLarge,
		keyReused, scopeMissing, failed, storeUnavailable,
	} {
		names = append(names, p.name)
	}
	return names
}

// ErrConsumed is told where a body was read outside.
var ErrConsumed = errConsumed
