package brokers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/ThreeDotsLabs/watermill-googlecloud/v2/pkg/googlecloud"
	"github.com/ThreeDotsLabs/watermill/message"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// newGoogle publishes to Google Pub/Sub. The ordering key of a message is the key of its event.
func newGoogle(project string, options ...option.ClientOption) (*watermillbridge.Publisher, error) {
	settings := pubsub.DefaultPublishSettings
	settings.Timeout = 4 * time.Second // the client must give up before Watermill (5 s) resumes the key
	publisher, err := googlecloud.NewPublisher(googlecloud.PublisherConfig{
		ProjectID: project, ClientOptions: options, PublishSettings: &settings,
		DoNotCreateTopicIfMissing: true, // a topic without a subscription drops its messages
		EnableMessageOrdering:     true,
		// Without this a key never goes on after an error.
		EnableMessageOrderingAutoResumePublishOnError: true,
		Marshaler: googlecloud.NewOrderingMarshaler(func(_ string, m *message.Message) (string, error) {
			return m.Metadata[core.HeaderPartitionKey], nil
		}),
	}, nil)
	if err != nil {
		return nil, err
	}
	return watermillbridge.NewPublisher(publisher, watermillbridge.Config{
		Classifier: classifyGoogle, CheckSize: checkGoogle, MaxPayload: 9 << 20,
		Receipt: func(m *message.Message) string { return m.Metadata[googlecloud.GoogleMessageIDHeaderKey] },
	})
}

func classifyGoogle(err error) core.Class {
	switch {
	case errors.As(err, &pubsub.ErrPublishingPaused{}):
		return core.ClassKeyUnavailable
	case errors.Is(err, googlecloud.ErrTopicDoesNotExist):
		return core.ClassUnroutable
	case errors.Is(err, context.DeadlineExceeded):
		return core.ClassUnavailable
	}
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.Unavailable, codes.DeadlineExceeded,
		codes.ResourceExhausted, codes.Aborted, codes.Internal, codes.Canceled:
		return core.ClassUnavailable
	case codes.NotFound:
		return core.ClassUnroutable
	default: // InvalidArgument too: one refused message fails all messages of its batch
		return core.DefaultClassifier(err)
	}
}

// checkGoogle refuses what Google Pub/Sub refuses.
func checkGoogle(e core.Event) error {
	for name, v := range e.Headers {
		if strings.HasPrefix(strings.ToLower(name), "goog") || len(v) > 1024 {
			return fmt.Errorf("header %q of %d bytes: Google Pub/Sub takes 1,024 bytes, and no name with goog",
				name, len(v))
		}
	}
	return nil
}
