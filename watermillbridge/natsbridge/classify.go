package natsbridge

import (
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ormoutbox/ormoutbox/core"
)

// rowIDMetadata is the value for watermillbridge.Config.RowIDMetadata: the header by which
// JetStream stores a message once within the duplicate window of its stream. TrackMsgId of
// watermill-nats must then stay false. It would use the message's UUID, which is the id of the
// event. If an event has two destinations in one stream, only the first would be stored.
const rowIDMetadata = nats.MsgIdHdr

// unavailable has the errors of the connection, of rights, and of a subject that no stream listens
// to. The event is not at fault.
var unavailable = []error{
	nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrDrainTimeout, nats.ErrConnectionReconnecting,
	nats.ErrDisconnected, nats.ErrStaleConnection, nats.ErrInvalidConnection, nats.ErrNoServers, nats.ErrNoInfoReceived,
	nats.ErrTimeout, nats.ErrReconnectBufExceeded, nats.ErrSlowConsumer, nats.ErrMaxConnectionsExceeded,
	nats.ErrMaxAccountConnectionsExceeded, nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked,
	nats.ErrAccountAuthExpired, nats.ErrPermissionViolation, nats.ErrSecureConnRequired, nats.ErrSecureConnWanted,
	nats.ErrConnectionNotTLS, nats.ErrTLS, nats.ErrNoResponders, nats.ErrNoStreamResponse, nats.ErrNoMatchingStream,
	nats.ErrStreamNotFound, nats.ErrJetStreamNotEnabled, nats.ErrJetStreamNotEnabledForAccount,
	nats.ErrTooManyStalledMsgs, nats.ErrAsyncPublishTimeout,
	nats.ErrInvalidJSAck, // a responder that is not a stream answers on the subject
	nats.ErrHeadersNotSupported, nats.ErrJetStreamPublisherClosed,
	jetstream.ErrNoStreamResponse, jetstream.ErrStreamNotFound, jetstream.ErrJetStreamNotEnabled,
	jetstream.ErrJetStreamNotEnabledForAccount, jetstream.ErrAsyncPublishTimeout, jetstream.ErrTooManyStalledMsgs,
}

// permanent has the errors that the same message gets each time.
var permanent = []error{
	nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrInvalidMsg, nats.ErrBadHeaderMsg,
	jetstream.ErrStreamMessageExceedsMaximum,
}

// Classify returns the class of an error of nats.go or watermill-nats, for
// watermillbridge.Config.Classifier:
//
//   - ClassPermanent: the message is larger than the server or the stream allows, or its subject or
//     headers are invalid.
//   - ClassUnavailable: the server or the stream cannot be reached or used now, rights are missing,
//     no stream has the subject, the stream is full and discards nothing, or no acknowledgement
//     came in time.
//   - ClassTransient: every other error, which relay.Config.Classifier then judges.
func Classify(err error) core.Class {
	for _, e := range permanent {
		if errors.Is(err, e) {
			return core.ClassPermanent
		}
	}
	for _, e := range unavailable {
		if errors.Is(err, e) {
			return core.ClassUnavailable
		}
	}
	if a, ok := errors.AsType[*nats.APIError](err); ok {
		return ofAPI(a.Code, jetstream.ErrorCode(a.ErrorCode))
	}
	if a, ok := errors.AsType[*jetstream.APIError](err); ok {
		return ofAPI(a.Code, a.ErrorCode)
	}
	return core.ClassTransient
}

// ofAPI returns the class of an answer of JetStream, by its HTTP-like status and its code.
func ofAPI(status int, code jetstream.ErrorCode) core.Class {
	switch {
	case code == jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return core.ClassPermanent
	case status >= 500, status == 404, status == 401, status == 403, status == 408, status == 429:
		return core.ClassUnavailable
	}
	return core.ClassTransient
}
