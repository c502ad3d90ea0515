package core

// SetRandom gives the relays that o starts from now on their source of chance.
func (o *Outbox) SetRandom(random func() float64) { o.random = random }

// Held counts what the relay of o holds: rows in the tracker, and outcomes that are not written.
func (o *Outbox) Held() int {
	r := o.relay.Load()
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.items) + r.active + r.hotCount + r.coldCount + r.unwritten + r.releasing + r.publishing
}
