package sqlonce

import (
	"context"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

// Cleanup implements once.Store. A held key expires no earlier than its lease, so the lease does
// not matter here.
func (s *Store) Cleanup(ctx context.Context, limit int) (deleted int, err error) {
	if limit <= 0 {
		return 0, nil
	}
	if s.db.Dialect() == core.MySQL {
		return s.cleanupMySQL(ctx, limit)
	}
	err = s.db.Single(ctx, "cleanup", func(q sqlkit.Querier) error {
		n, err := q.Exec(ctx, s.sql["cleanup"], int64(limit))
		deleted = int(n)
		return err
	})
	return deleted, err
}

// cleanupMySQL locks what nobody else has locked and deletes it by its key, so that it never waits
// for anybody.
func (s *Store) cleanupMySQL(ctx context.Context, limit int) (deleted int, err error) {
	err = s.db.InTx(ctx, "cleanup", func(q sqlkit.Querier) error {
		deleted = 0
		keys, err := s.lockExpired(ctx, q, limit)
		if err != nil {
			return err
		}
		for start := 0; start < len(keys); start += sqlstore.DeleteChunk {
			chunk := keys[start:min(start+sqlstore.DeleteChunk, len(keys))]
			args := make([]any, 0, 3*len(chunk))
			for _, k := range chunk {
				args = append(args, k[0], k[1], k[2])
			}
			text := "DELETE FROM {key} WHERE " + strings.Repeat("("+keyIs+") OR ", len(chunk)-1) + "(" + keyIs + ")"
			n, err := q.Exec(ctx, s.db.Statement(text), args...)
			if err != nil {
				return err
			}
			deleted += int(n)
		}
		return nil
	})
	return deleted, err
}

func (s *Store) lockExpired(ctx context.Context, q sqlkit.Querier, limit int) (keys [][3]string, err error) {
	err = sqlkit.EachRow(ctx, q, s.sql["expired"], []any{int64(limit)}, func(rows core.Rows) error {
		var k [3]string
		err := rows.Scan(&k[0], &k[1], &k[2])
		keys = append(keys, k)
		return err
	})
	return keys, err
}
