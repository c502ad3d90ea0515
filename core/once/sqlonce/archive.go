package sqlonce

import (
	"context"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// archived is a key with what shows that it has not changed since.
type archived struct {
	once.ArchivedKey
	status           int
	updated, expires int64
}

// Archive implements once.Archiver.
func (s *Store) Archive(ctx context.Context, limit int, fn func(ctx context.Context, keys []once.ArchivedKey) error,
) (deleted int, err error) {
	if limit <= 0 {
		return 0, nil
	}
	a := sqlstore.Archive[archived]{
		Find: s.sql.old, Scan: scanArchived, Lock: s.sql.lockOld, Delete: s.sql.remove,
		Key: func(k archived) []any {
			return []any{k.Key.Scope, k.Key.Tenant, k.Key.ID, k.Fence, k.updated, k.expires, k.status}
		},
		ID: func(k archived) []string { return []string{k.Key.Scope, k.Key.Tenant, k.Key.ID} },
	}
	return a.Run(ctx, s.db, "archive", []any{int64(limit)}, func(ctx context.Context, rows []archived) error {
		keys := make([]once.ArchivedKey, len(rows))
		for i := range rows {
			keys[i] = rows[i].ArchivedKey
		}
		return fn(ctx, keys)
	})
}

func scanArchived(rows core.Rows) (k archived, bytes int, err error) {
	var fingerprint []byte
	var created, done int64
	err = rows.Scan(&k.Key.Scope, &k.Key.Tenant, &k.Key.ID, &fingerprint, &k.Owner, &k.status, &k.Fence, &k.Attempts,
		&created, &k.updated, &done, &k.expires, &k.Result.Data, &k.Result.ContentType, &k.Result.Meta)
	switch {
	case err != nil:
		return k, 0, err
	case len(fingerprint) == len(k.Fingerprint):
		k.Fingerprint = once.Fingerprint(fingerprint)
	case len(fingerprint) != 0:
		return k, 0, fmt.Errorf("fingerprint of %s has %d bytes", k.Key, len(fingerprint))
	}
	k.CreatedAt, k.ExpiresAt = time.UnixMicro(created).UTC(), time.UnixMicro(k.expires).UTC()
	if k.Done = k.status == statusDone; k.Done {
		k.DoneAt = time.UnixMicro(done).UTC()
	} else {
		k.Result = once.Result{} // of an earlier time to live
	}
	return k, len(k.Result.Data), nil
}
