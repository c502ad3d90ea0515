package page

import (
	"context"

	"github.com/redis/go-redis/v9"
)

var (
	ctx    context.Context
	client *redis.Client
)
