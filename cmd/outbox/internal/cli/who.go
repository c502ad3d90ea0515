package cli

import (
	"os/user"

	"github.com/spf13/cobra"
)

// who says who changes something, and why.
type who struct {
	actor, reason string
	yes           bool
}

func (w *who) flags(c *cobra.Command) {
	c.Flags().BoolVar(&w.yes, "yes", false, "do not ask")
	c.Flags().StringVar(&w.reason, "reason", "", "why; it is stored")
	c.Flags().StringVar(&w.actor, "actor", "", "who; it is stored (default: the user of the system)")
}

// check requires a reason, and finds the actor.
func (w *who) check() error {
	if w.reason == "" {
		return usage("--reason is missing: it is stored with the change")
	}
	if w.actor == "" {
		w.actor = "unknown"
		if u, err := user.Current(); err == nil {
			w.actor = u.Username
		}
	}
	return nil
}
