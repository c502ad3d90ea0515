package kafkabridge

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/eapache/go-resiliency/breaker"

	"github.com/ormoutbox/ormoutbox/core"
)

// mark returns err marked with its class. It returns err unmarked if others judge it (timeouts,
// network errors of the standard library) or its meaning is not known.
func mark(err error) error {
	for _, e := range []error{
		sarama.ErrOutOfBrokers, sarama.ErrClosedClient, sarama.ErrNotConnected, sarama.ErrBrokerNotFound,
		sarama.ErrShuttingDown, sarama.ErrControllerNotAvailable, breaker.ErrBreakerOpen,
	} {
		if errors.Is(err, e) {
			return core.Unavailable(err)
		}
	}
	// Errors with which Sarama refuses to send: the message is too large for
	// Producer.MaxMessageBytes, or does not fit into Kafka's format.
	var unsendable sarama.ConfigurationError
	var unencodable sarama.PacketEncodingError
	if errors.As(err, &unsendable) || errors.As(err, &unencodable) {
		return core.Permanent(err)
	}
	if k, ok := errors.AsType[sarama.KError](err); ok {
		return markKafka(err, k)
	}
	return err
}

// ofBatch reports whether err refuses a batch and would be held against each of its messages. The
// broker and the client do not name the message at fault, or that the batch is too large.
func ofBatch(err error) bool {
	var unencodable sarama.PacketEncodingError
	if _, ok := errors.AsType[sarama.KError](err); !ok && !errors.As(err, &unencodable) {
		return false
	}
	class, marked := core.ClassOf(mark(err))
	return !marked || class == core.ClassPermanent
}

func markKafka(err error, k sarama.KError) error {
	switch k {
	case sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge, sarama.ErrInvalidRecord,
		sarama.ErrInvalidTimestamp, sarama.ErrInvalidTopic:
		return core.Permanent(err)

	case sarama.ErrLeaderNotAvailable, sarama.ErrNotLeaderForPartition, sarama.ErrFencedLeaderEpoch,
		sarama.ErrUnknownLeaderEpoch, sarama.ErrReplicaNotAvailable, sarama.ErrKafkaStorageError,
		sarama.ErrLogDirNotFound, sarama.ErrListenerNotFound, sarama.ErrPreferredLeaderNotAvailable,
		sarama.ErrEligibleLeadersNotAvailable:
		return core.UnavailableForKey(err) // one partition

	case sarama.ErrOutOfOrderSequenceNumber, sarama.ErrUnknownProducerID, sarama.ErrInvalidProducerEpoch,
		sarama.ErrInvalidProducerIDMapping:
		// After a crash of the broker, the broker and Sarama may disagree about the messages sent
		// to the partition. Sarama then starts with a new session, so the next publish succeeds.
		return core.UnavailableForKey(err)

	case sarama.ErrBrokerNotAvailable, sarama.ErrNetworkException, sarama.ErrNotEnoughReplicas,
		sarama.ErrNotEnoughReplicasAfterAppend, sarama.ErrRequestTimedOut, sarama.ErrThrottlingQuotaExceeded,
		sarama.ErrOffsetsLoadInProgress, sarama.ErrConsumerCoordinatorNotAvailable,
		sarama.ErrNotController, sarama.ErrStaleControllerEpochCode, sarama.ErrStaleBrokerEpoch,
		sarama.ErrUnsupportedVersion, sarama.ErrPolicyViolation,
		// The brokers refuse a setting that every event is sent with.
		sarama.ErrInvalidRequiredAcks, sarama.ErrUnsupportedForMessageFormat, sarama.ErrUnsupportedCompressionType,
		sarama.ErrInvalidConfig:
		return core.Unavailable(err)

	case sarama.ErrTopicAuthorizationFailed, sarama.ErrClusterAuthorizationFailed, sarama.ErrSASLAuthenticationFailed,
		sarama.ErrUnsupportedSASLMechanism, sarama.ErrIllegalSASLState, sarama.ErrSecurityDisabled,
		sarama.ErrDelegationTokenExpired, sarama.ErrDelegationTokenNotFound,
		sarama.ErrDelegationTokenAuthorizationFailed, sarama.ErrTransactionalIDAuthorizationFailed:
		return core.Unavailable(fmt.Errorf("not allowed: %w", err))

	case sarama.ErrUnknownTopicOrPartition:
		// The event is not at fault, and creating the topic is the remedy: the topic is stopped,
		// and no event becomes DEAD.
		return core.Unavailable(fmt.Errorf("the topic does not exist (create it, or let the brokers): %w", err))

	default:
		return err
	}
}
