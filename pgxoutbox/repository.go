package pgxoutbox

import (
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// NewRepository returns the tables of an outbox in the database of pool, as sqloutbox.New does for
// a *sql.DB. The relay then works on pool too. A claim or a mark is one round trip, in the binary
// format. NewRepository sends no statement. The pool of a Pool works as well: give its field Pool.
func NewRepository(pool *pgxpool.Pool, cfg sqloutbox.Config) (*sqloutbox.Repository, error) {
	if pool == nil {
		return nil, errNilPool
	}
	return sqloutbox.NewWithPool(access{pool}, cfg)
}

var errNilPool = errors.New("pgxoutbox: the *pgxpool.Pool is nil")
