// Package who checks who changes events, and why.
package who

// Problem returns why an actor or a reason is invalid, as the Format of a core.FieldError, or "".
func Problem(actor, reason string) string {
	switch {
	case actor == "" || len(actor) > 255:
		return "{Actor} needs 1 to 255 bytes"
	case reason == "" || len(reason) > 1024:
		return "{Reason} needs 1 to 1024 bytes"
	}
	return ""
}
