package page

import "context"

var (
	ctx            context.Context
	brokers        []string
	user, password string
)
