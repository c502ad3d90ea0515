package outboxtest

// Deadlock makes t the victim of a deadlock in a statement of the application, and returns the
// error of that statement. The transaction is then in the state in which a database of the
// repository's dialect leaves it. PostgreSQL refuses everything but a rollback. MySQL and MariaDB
// have rolled it back.
func (t *Tx) Deadlock() error {
	t.repo.mu.Lock()
	t.abort()
	t.repo.mu.Unlock()
	err := databaseError(t.repo.dialect, errDeadlock)
	t.tracker.Observe("UPDATE things SET n = n", err)
	return err
}

// Disconnect breaks the connection of t, and the database rolls t back. The next statement fails.
func (t *Tx) Disconnect() {
	t.repo.mu.Lock()
	t.end(false)
	t.repo.mu.Unlock()
}
