package page

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
)

type txKey struct{}

// gqlClient is a client that was generated with entgql.
type gqlClient struct{ *entclient.Client }

func (gqlClient) OpenTx(ctx context.Context) (context.Context, driver.Tx, error) {
	return nil, nil, nil
}

var (
	ctx     context.Context
	client  gqlClient
	conn    *sql.Conn
	pgxPool *pgxpool.Pool
	columns []string
	rows    pgx.CopyFromSource
)
