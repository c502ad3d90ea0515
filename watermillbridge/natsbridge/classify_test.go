package natsbridge_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	for want, errs := range map[core.Class][]error{
		core.ClassPermanent: {
			nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrBadHeaderMsg, jetstream.ErrStreamMessageExceedsMaximum,
			&nats.APIError{Code: 400, ErrorCode: 10054},
			&jetstream.APIError{Code: 400, ErrorCode: jetstream.JSErrCodeStreamMessageExceedsMaximum},
		},
		core.ClassUnavailable: {
			nats.ErrNoServers, nats.ErrTimeout, nats.ErrConnectionClosed, nats.ErrReconnectBufExceeded,
			nats.ErrPermissionViolation, nats.ErrNoResponders, nats.ErrNoStreamResponse, nats.ErrJetStreamNotEnabled,
			jetstream.ErrNoStreamResponse, jetstream.ErrStreamNotFound,
			&nats.APIError{Code: 503, ErrorCode: 10077, Description: "maximum messages exceeded"},
			&jetstream.APIError{Code: 503, ErrorCode: 10023},
			&jetstream.APIError{Code: 404, ErrorCode: jetstream.JSErrCodeStreamNotFound},
		},
		core.ClassTransient: {
			errors.New("something else"), &nats.APIError{Code: 400, ErrorCode: 10071},
			&jetstream.APIError{Code: 400, ErrorCode: 10071},
		},
	} {
		for _, err := range errs {
			for _, err := range []error{err, fmt.Errorf("sending message failed: %w", err)} {
				if got := natsbridge.Classify(err); got != want {
					t.Errorf("%v: %v, want %v", err, got, want)
				}
			}
		}
	}
}

func ExampleClassify() {
	fmt.Println(natsbridge.Classify(nats.ErrNoServers), natsbridge.Classify(nats.ErrMaxPayload))
	// Output: unavailable permanent
}
