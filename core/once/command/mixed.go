package command

import (
	"log/slog"
	"sync"
	"time"
)

const (
	mixedSigns  = 3         // signs that make a warning
	mixedPause  = time.Hour // between two warnings of a channel
	mixedEffect = 1024      // effects of a channel that are remembered
)

// mixed watches channels without a Destination for signs of several destinations. A sign is a
// sequence of three: an effect has an outage, other effects of the channel succeed, and the same
// effect has an outage again. Each outage stopped the whole channel.
type mixed struct {
	logger *slog.Logger

	mu       sync.Mutex
	channels map[string]*mixture
}

type mixture struct {
	acks   uint64
	down   map[string]uint64 // value of acks when an effect last met an outage
	signs  int
	warned time.Time
}

// note notes how an execution ended.
func (m *mixed) note(e Effect, end visitEnd) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.channels[e.Channel]
	if c == nil {
		c = &mixture{}
		m.channels[e.Channel] = c
	}
	switch end {
	case visitGood:
		c.acks++
		delete(c.down, e.ID)
		return
	case visitDown:
	case visitUnclear, visitRefused:
		return
	}
	if acks, known := c.down[e.ID]; known && acks != c.acks {
		c.signs++
	}
	if c.down == nil || len(c.down) >= mixedEffect {
		c.down = map[string]uint64{}
	}
	c.down[e.ID] = c.acks
	if now := time.Now(); c.signs >= mixedSigns && (c.warned.IsZero() || now.Sub(c.warned) >= mixedPause) {
		c.signs, c.warned = 0, now
		m.logger.Warn("command: some effects of a channel meet an outage again and again while others succeed, and "+
			"stop the whole channel each time: "+
			"do they go to different places? Name these with WorkerConfig.Destination", "component", "outbox",
			"channel", e.Channel, "effect", e.ID)
	}
}
