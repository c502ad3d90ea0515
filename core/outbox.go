package core

// Outbox records events in transactions and relays them.
type Outbox struct {
	cfg Config
}
