package franzbridge

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ormoutbox/ormoutbox/core"
)

// errNoAnswer: the context ended before Kafka has answered. The broker may or may not have the
// message. The event is published again.
var errNoAnswer = errors.New("franzbridge: Kafka has not answered, the outcome is unknown")

// errClosed: an event came after Close. Its class is Unavailable: the event stays in the outbox.
var errClosed = errors.New("franzbridge: publisher is closed")

// mark returns err marked with its class. answers: the topic has acknowledged another message
// meanwhile. An error whose meaning is not known comes back unmarked, for the relay to judge.
func mark(err error, answers bool) error {
	switch {
	case isContext(err), errors.Is(err, kgo.ErrRecordTimeout), errors.Is(err, kgo.ErrRecordRetries),
		errors.Is(err, kgo.ErrAborting):
		if err = fmt.Errorf("%w: %w", errNoAnswer, err); answers {
			return core.UnavailableForKey(err) // its partition alone
		}
		return core.Unavailable(err)
	case errors.Is(err, kgo.ErrClientClosed), errors.Is(err, kgo.ErrMaxBuffered),
		// An error of its own type that the client does not export.
		strings.Contains(err.Error(), "unable to initialize a producer ID"):
		return core.Unavailable(err)
	}
	if k, ok := errors.AsType[*kerr.Error](err); ok {
		return markKafka(err, k)
	}
	return err
}

func isContext(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// ofBatch reports whether err refuses a batch and would be held against each of its messages. The
// broker does not name the message at fault, or that the batch is too large.
func ofBatch(err error) bool {
	k, ok := errors.AsType[*kerr.Error](err)
	if !ok {
		return false
	}
	class, marked := core.ClassOf(markKafka(err, k))
	return !marked || class == core.ClassPermanent
}

func markKafka(err error, k *kerr.Error) error {
	switch k {
	case kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp,
		kerr.InvalidTopicException:
		return core.Permanent(err)
	case kerr.LeaderNotAvailable, kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch,
		kerr.ReplicaNotAvailable, kerr.KafkaStorageError, kerr.LogDirNotFound, kerr.ListenerNotFound,
		kerr.PreferredLeaderNotAvailable, kerr.EligibleLeadersNotAvailable:
		return core.UnavailableForKey(err) // one partition
	case kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch,
		kerr.InvalidProducerIDMapping, kerr.DuplicateSequenceNumber:
		// After a crash of the broker, the broker and the client may disagree about the messages
		// sent to the partition. The client then starts with a new session.
		return core.UnavailableForKey(err)
	case kerr.BrokerNotAvailable, kerr.NetworkException, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend,
		kerr.RequestTimedOut, kerr.ThrottlingQuotaExceeded, kerr.CoordinatorLoadInProgress,
		kerr.CoordinatorNotAvailable, kerr.NotController, kerr.StaleControllerEpoch, kerr.StaleBrokerEpoch,
		kerr.UnsupportedVersion, kerr.PolicyViolation,
		// The brokers refuse a setting that every event is sent with.
		kerr.InvalidRequiredAcks, kerr.UnsupportedForMessageFormat, kerr.UnsupportedCompressionType,
		kerr.InvalidConfig:
		return core.Unavailable(err)
	case kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.SaslAuthenticationFailed,
		kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState, kerr.SecurityDisabled, kerr.DelegationTokenExpired,
		kerr.DelegationTokenNotFound, kerr.DelegationTokenAuthorizationFailed,
		kerr.TransactionalIDAuthorizationFailed:
		return core.Unavailable(fmt.Errorf("not allowed: %w", err))
	case kerr.UnknownTopicOrPartition:
		return core.Unavailable(fmt.Errorf("the topic does not exist (create it): %w", err))
	case kerr.UnknownTopicID:
		return core.Unavailable(fmt.Errorf("the topic was deleted and made again; its events soon go to the new one: "+
			"%w", err))
	}
	return err
}
