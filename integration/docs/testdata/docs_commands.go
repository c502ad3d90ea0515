package page

import (
	"context"
	"database/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
)

type (
	Order struct{ ID string }
	Quote struct{ ID string }
)

var (
	ctx                                    context.Context
	db                                     *sql.DB
	store                                  *sqlonce.Store
	effects                                *sqlcommand.Store
	outbox                                 *core.Outbox
	queue                                  *command.Queue
	tx                                     core.Tx
	quote                                  Quote
	tenant, eventID, subscriber, processID string
	body                                   []byte
	deliver                                command.Handler
	broker                                 core.Publisher
)

func createOrder(ctx context.Context, q Quote) (Order, error) { return Order{}, nil }

func post(ctx context.Context, body []byte, key string) (string, error) { return "", nil }
