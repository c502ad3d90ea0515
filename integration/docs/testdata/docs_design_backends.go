package page

import (
	"context"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
)

type myTable struct {
	core.Repository
	ops.Store
}

func emptyTable(*testing.T) *myTable { return nil }

func (*myTable) Begin(context.Context) (suite.Transaction, error) { return nil, nil }

func (*myTable) lockRows(context.Context, suite.Transaction, ...core.RowID) error { return nil }

func (*myTable) countAudits(testing.TB) int { return 0 }
