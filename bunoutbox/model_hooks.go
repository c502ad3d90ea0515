package bunoutbox

import (
	"context"

	"github.com/uptrace/bun"
)

// BeforeInsert is for the BeforeInsert hook of a model.
func BeforeInsert(ctx context.Context, q *bun.InsertQuery) error { return nil }

// BeforeUpdate is for the BeforeUpdate hook of a model.
func BeforeUpdate(ctx context.Context, q *bun.UpdateQuery) error { return nil }

// BeforeDelete is for the BeforeDelete hook of a model.
func BeforeDelete(ctx context.Context, q *bun.DeleteQuery) error { return nil }

// AfterInsert is for the AfterInsert hook of a model.
func AfterInsert(ctx context.Context, q *bun.InsertQuery) error { return nil }

// AfterUpdate is for the AfterUpdate hook of a model.
func AfterUpdate(ctx context.Context, q *bun.UpdateQuery) error { return nil }

// AfterDelete is for the AfterDelete hook of a model.
func AfterDelete(ctx context.Context, q *bun.DeleteQuery) error { return nil }
