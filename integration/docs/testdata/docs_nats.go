package page

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"
)

var (
	ctx    context.Context
	url    string
	logger watermill.LoggerAdapter
)
