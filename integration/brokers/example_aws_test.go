package brokers_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-aws/sns"
	"github.com/ThreeDotsLabs/watermill-aws/sqs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// newSQS publishes to FIFO queues.
func newSQS(cfg aws.Config) (*watermillbridge.Publisher, error) {
	publisher, err := sqs.NewPublisher(sqs.PublisherConfig{
		AWSConfig: impatient(cfg), DoNotCreateQueueIfNotExists: true,
		GenerateSendMessageInput: func(ctx context.Context, url sqs.QueueURL, m *types.Message) (
			*awssqs.SendMessageInput, error,
		) {
			in, err := sqs.GenerateSendMessageInputDefault(ctx, url, m)
			if err != nil {
				return nil, err
			}
			in.MessageGroupId = m.MessageAttributes[sns.MessageGroupIdMetadataField].StringValue
			in.MessageDeduplicationId = m.MessageAttributes[sns.MessageDeduplicationIdMetadataField].StringValue
			delete(m.MessageAttributes, sns.MessageGroupIdMetadataField)
			delete(m.MessageAttributes, sns.MessageDeduplicationIdMetadataField)
			return in, nil
		},
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	return watermillbridge.NewPublisher(publisher, awsConfig)
}

// newSNS publishes to FIFO topics.
func newSNS(cfg aws.Config, topics sns.TopicResolver) (*watermillbridge.Publisher, error) {
	publisher, err := sns.NewPublisher(sns.PublisherConfig{
		AWSConfig: impatient(cfg), DoNotCreateTopicIfNotExists: true, TopicResolver: topics,
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	return watermillbridge.NewPublisher(publisher, awsConfig)
}

// impatient makes a call end before the relay's PublishTimeout: watermill-aws takes no context.
func impatient(cfg aws.Config) aws.Config {
	cfg.RetryMaxAttempts = 1 // the relay repeats
	cfg.HTTPClient = awshttp.NewBuildableClient().WithTimeout(4 * time.Second)
	return cfg
}

var awsConfig = watermillbridge.Config{
	// A name of AWS has no dots, and that of a FIFO queue or topic ends in .fifo.
	Topic:   func(d core.Delivery) string { return strings.ReplaceAll(d.Topic, ".", "-") + ".fifo" },
	Marshal: marshalAWS, Classifier: classifyAWS, CheckSize: checkAWS, MaxPayload: 200 << 10,
}

// marshalAWS sets the group, in which messages are in order, and the id by which copies are known.
func marshalAWS(ctx context.Context, d core.Delivery) (*message.Message, error) {
	msg, err := watermillbridge.NewCompactMessage(ctx, d)
	if err != nil {
		return nil, err
	}
	group := d.Key
	if group == "" {
		group = d.ID
	}
	hash := sha256.Sum256([]byte(group)) // a key may be longer than a group's id, and not ASCII
	msg.Metadata[sns.MessageGroupIdMetadataField] = hex.EncodeToString(hash[:])
	msg.Metadata[sns.MessageDeduplicationIdMetadataField] = d.RowID.String()
	return msg, nil
}

func classifyAWS(err error) core.Class {
	if strings.HasSuffix(err.Error(), "doesn't exist") { // watermill-aws, without a type
		return core.ClassUnroutable
	}
	if failure, ok := errors.AsType[smithy.APIError](err); ok {
		switch failure.ErrorCode() {
		case "AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "NotFound", "NotFoundException":
			return core.ClassUnroutable
		case "InvalidMessageContents":
			return core.ClassPermanent
		case "AccessDenied", "AccessDeniedException", "AuthorizationError", "ExpiredToken", "InvalidClientTokenId",
			"UnrecognizedClientException", "InternalError", "InternalFailure":
			return core.ClassUnavailable
		}
	}
	return core.DefaultClassifier(err)
}

var awsName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// checkAWS refuses what AWS refuses, or changes.
func checkAWS(e core.Event) error {
	if len(e.Headers) > 8 { // the fields and the UUID take two attributes of ten
		return fmt.Errorf("%d headers: AWS takes 8", len(e.Headers))
	}
	for name, v := range e.Headers {
		if lower := strings.ToLower(name); v == "" || !awsName.MatchString(name) ||
			strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon.") || !isAWSText(v) {
			return fmt.Errorf("header %q: AWS takes no such name or value", name)
		}
	}
	if len(e.Payload) == 0 || !isAWSText(string(e.Payload)) {
		return errors.New("payload: AWS takes no empty text and no bytes that are not text: encode it as base64")
	}
	return nil
}

func isAWSText(s string) bool {
	return strings.ToValidUTF8(s, "") == s && strings.IndexFunc(s, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == '\ufffe' || r == '\uffff'
	}) < 0
}
