package page

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

var (
	ctx           context.Context
	natsPublisher message.Publisher
	msg           *message.Message
)

func handleOther(*message.Message) error { return nil }

func handleOrder(context.Context, string, []byte) error { return nil }
