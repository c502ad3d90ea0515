// Package inbox makes Watermill consumers idempotent: the effect of a message happens once.
package inbox
