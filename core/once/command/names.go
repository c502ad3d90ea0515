package command

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/program"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// names has when the channels of a Worker are registered again. The zero value is ready for use.
type names struct {
	mu     sync.Mutex
	until  map[string]time.Time
	warned []string
}

// register tells a Store that is a once.Registrar whose channel this is, before its first effect and
// twice a day. It is only for the warning, so a store that fails is asked again in a minute.
func (w *Worker) register(ctx context.Context, channel string) {
	store, ok := w.cfg.Store.(once.Registrar)
	if !ok || program.Path() == "" {
		return
	}
	w.names.mu.Lock()
	defer w.names.mu.Unlock()
	if time.Now().Before(w.names.until[channel]) {
		return
	}
	if w.names.until == nil {
		w.names.until = map[string]time.Time{}
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.StoreTimeout)
	defer cancel()
	others, err := store.Register(ctx, channel, program.Path())
	if err != nil {
		w.names.until[channel] = time.Now().Add(time.Minute)
		return
	}
	w.names.until[channel] = time.Now().Add(12 * time.Hour)
	for _, other := range others {
		if id := channel + "\x1f" + other; !slices.Contains(w.names.warned, id) {
			w.names.warned = append(w.names.warned, id)
			w.cfg.Logger.Warn("command: another program executes effects of the same channel: each effect is "+
				"executed by "+
				"one of the two; give one of them another channel", "component", "outbox", "channel", channel,
				"program", program.Path(), "other_program", other)
		}
	}
}
