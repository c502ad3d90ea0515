package page

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/nats-io/nats.go"
)

var (
	ctx    context.Context
	url    string
	conn   *nats.Conn
	logger watermill.LoggerAdapter
)
