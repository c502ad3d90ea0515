package ops

// Fingerprint names the failure of an event: a hash of its error code, topic, type, and the text of
// its error without numbers, ids and quoted texts. Events that failed alike have the same one. It
// is empty if the event has no error.
func (e *Event) Fingerprint() string {
	if e.ErrorCode == "" && e.Error == "" {
		return ""
	}
	return e.ErrorGroup
}
