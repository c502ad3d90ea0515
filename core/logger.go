package core

import (
	"context"
	"log/slog"
)

// DefaultLogger returns the default of every Config.Logger of this project. It writes warnings and
// errors to the current slog.Default(), and leaves out everything below. To silence a component,
// give it slog.New(slog.DiscardHandler).
func DefaultLogger() *slog.Logger { return slog.New(warnings{}) }

// warnings passes warnings and errors on to slog's default handler.
type warnings struct {
	with func(slog.Handler) slog.Handler // attributes and groups; nil: none
}

func (w warnings) handler() slog.Handler {
	h := slog.Default().Handler()
	if w.with != nil {
		h = w.with(h)
	}
	return h
}

// Enabled implements slog.Handler.
func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && slog.Default().Handler().Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (w warnings) Handle(ctx context.Context, r slog.Record) error { return w.handler().Handle(ctx, r) }

// WithAttrs implements slog.Handler.
func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return w.and(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (w warnings) WithGroup(name string) slog.Handler {
	return w.and(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

func (w warnings) and(more func(slog.Handler) slog.Handler) warnings {
	before := w.with
	return warnings{with: func(h slog.Handler) slog.Handler {
		if before != nil {
			h = before(h)
		}
		return more(h)
	}}
}
