package inbox_test

import (
	"log/slog"
	"strings"
	"testing"

	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
)

// Another program under the name of a consumer shares its events. That is told once, at the first
// message.
func TestAnotherProgramUnderOneName(t *testing.T) {
	var log lockedBuffer
	w := newWorld(t, func(c *coreinbox.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	_, err := w.store.Register(t.Context(), coreinbox.Registration{
		Consumer: "billing", Handler: "handler", Program: "example.com/mailer", Topic: "payments",
	})
	must(t, err)
	must(t, w.deliver(w.handler, event(t.Context(), "e")))
	must(t, w.deliver(w.handler, event(t.Context(), "f")))
	if text := log.String(); strings.Count(text, "another program") != 1 || !strings.Contains(text, "level=WARN") ||
		!strings.Contains(text, "other_program=example.com/mailer other_topic=payments") {
		t.Errorf("logged %s", text)
	}
}
