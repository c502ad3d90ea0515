package franzbridge

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ormoutbox/ormoutbox/core"
)

func TestEveryRowOfTheClasses(t *testing.T) {
	t.Parallel()
	const unmarked = core.Class(255)
	for want, errs := range map[core.Class][]error{
		core.ClassPermanent: {
			kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp,
			kerr.InvalidTopicException,
		},
		core.ClassKeyUnavailable: {
			kerr.LeaderNotAvailable, kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch,
			kerr.ReplicaNotAvailable, kerr.KafkaStorageError, kerr.LogDirNotFound, kerr.ListenerNotFound,
			kerr.PreferredLeaderNotAvailable, kerr.EligibleLeadersNotAvailable, kerr.OutOfOrderSequenceNumber,
			kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping,
			kerr.DuplicateSequenceNumber,
		},
		core.ClassUnavailable: {
			kerr.BrokerNotAvailable, kerr.NetworkException, kerr.NotEnoughReplicas,
			kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut, kerr.ThrottlingQuotaExceeded,
			kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotController,
			kerr.StaleControllerEpoch, kerr.StaleBrokerEpoch, kerr.UnsupportedVersion, kerr.PolicyViolation,
			kerr.InvalidRequiredAcks, kerr.UnsupportedForMessageFormat, kerr.UnsupportedCompressionType,
			kerr.InvalidConfig, kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed,
			kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState,
			kerr.SecurityDisabled, kerr.DelegationTokenExpired, kerr.DelegationTokenNotFound,
			kerr.DelegationTokenAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed,
			kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kgo.ErrClientClosed, kgo.ErrMaxBuffered,
			errors.New("unable to initialize a producer ID due to request failures"),
			context.DeadlineExceeded, context.Canceled, kgo.ErrRecordTimeout, kgo.ErrRecordRetries, kgo.ErrAborting,
		},
		unmarked: {kerr.UnknownServerError, kerr.CorruptMessage, errors.New("something else")},
	} {
		for _, err := range errs {
			for _, cause := range []error{err, fmt.Errorf("wrapped: %w", err)} {
				got := mark(cause, false)
				class, marked := core.ClassOf(got)
				if marked != (want != unmarked) || marked && class != want {
					t.Errorf("%v: class %v, marked %t; want %v", cause, class, marked, want)
				}
				if !errors.Is(got, err) {
					t.Errorf("%v does not wrap %v", got, err)
				}
			}
		}
	}
}

// Without an answer, only the partition is unavailable if others of the topic answer.
func TestNoAnswerWhileOthersAreAnswered(t *testing.T) {
	t.Parallel()
	err := mark(context.DeadlineExceeded, true)
	if class, _ := core.ClassOf(err); class != core.ClassKeyUnavailable || !errors.Is(err, errNoAnswer) {
		t.Errorf("err = %v, class %v", err, class)
	}
}
