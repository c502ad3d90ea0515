package page

import (
	"context"

	entgo "entgo.io/ent"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
)

var (
	ctx       context.Context
	dsn       string
	publisher core.Publisher
)

func placed(ctx context.Context, m *entclient.OrderMutation, v entgo.Value) ([]core.Event, error) {
	return nil, nil
}
