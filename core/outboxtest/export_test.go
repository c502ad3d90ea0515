package outboxtest

// Victim does to t what a deadlock does whose victim it is, and returns the error.
func (t *Tx) Victim() error {
	t.repo.mu.Lock()
	t.abort()
	t.repo.mu.Unlock()
	err := databaseError(t.repo.dialect, errDeadlock)
	t.tracker.Observe("UPDATE things SET n = n", err)
	return err
}

// Disconnect loses the connection of t, which the database rolls back.
func (t *Tx) Disconnect() {
	t.repo.mu.Lock()
	t.end(false)
	t.repo.mu.Unlock()
}
