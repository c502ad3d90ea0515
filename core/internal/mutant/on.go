//go:build mutant

package mutant

import "os"

// Active is the mistake that is built in.
var Active = os.Getenv("OUTBOX_MUTANT")
