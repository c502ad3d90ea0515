package sqlonce

import "context"

// Cleanup implements once.Store. The lease does not matter here, because a held key expires no
// earlier than its lease.
func (s *Store) Cleanup(ctx context.Context, limit int) (deleted int, err error) {
	if limit <= 0 {
		return 0, nil
	}
	return s.sql.cleanup.Run(ctx, s.db, "cleanup", nil, int64(limit))
}
