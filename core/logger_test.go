package core_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

// The default logger follows slog's default, even if that is set later, and passes on warnings and
// errors.
func TestDefaultLogger(t *testing.T) {
	l := core.DefaultLogger().With("a", 1).WithGroup("g").With("b", 2)
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	var out bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	l.Info("quiet")
	l.Warn("loud", "c", 3)
	l.Error("louder")
	got := out.String()
	if strings.Contains(got, "quiet") || !strings.Contains(got, "msg=loud a=1 g.b=2 g.c=3") ||
		!strings.Contains(got, "msg=louder") {
		t.Errorf("logged %q", got)
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError})))
	out.Reset()
	if l.Warn("loud"); out.Len() > 0 {
		t.Errorf("logged %q below the level of slog's default", out.String())
	}
}
