package httpbridge

import (
	"errors"
	"net/http"
	"regexp"
	"strconv"

	wmhttp "github.com/ThreeDotsLabs/watermill-http/v2/pkg/http"

	"github.com/ormoutbox/ormoutbox/core"
)

// Classify returns the class of an error of watermill-http, for watermillbridge.Config.Classifier.
// ClassOfStatus judges an answer with an error status. A closed publisher is ClassUnavailable.
// ClassTransient is for a message that cannot be made into a request, and for any other error:
// core.Config.Classifier then judges it, and recognises network errors.
func Classify(err error) core.Class {
	switch {
	case errors.Is(err, wmhttp.ErrPublisherClosed):
		return core.ClassUnavailable
	case errors.Is(err, wmhttp.ErrErrorResponse):
		return ClassOfStatus(statusOf(err))
	}
	return core.ClassTransient
}

// statusLine finds the status in the text that watermill-http makes: "503 Service Unavailable:
// server responded with error status".
var statusLine = regexp.MustCompile(`(?:^|: )([3-9]\d\d)[ :]`)

// statusOf returns the status in err, or 0 if there is none.
func statusOf(err error) int {
	found := statusLine.FindStringSubmatch(err.Error())
	if found == nil {
		return 0
	}
	status, _ := strconv.Atoi(found[1]) // three digits: it cannot fail
	return status
}

// ClassOfStatus returns the class of an answer with the given status:
//
//   - ClassPermanent for 400, 406, 411, 413, 414, 415, 417, 422 and 431: this request will never be
//     accepted.
//   - ClassTransient for 409, 500 and any status that is not listed: the event or the moment may be
//     at fault. After core.Config.MaxAttempts the event is DEAD, unless the endpoint has accepted
//     nothing else meanwhile.
//   - ClassUnavailable for redirects that were not followed, 401, 402, 403, 404, 405, 407, 408,
//     410, 421, 423, 425, 426, 428, 429, 451, 501 and all above: the endpoint is gone, throttles,
//     is down, or does not know the client. It costs no attempt.
func ClassOfStatus(status int) core.Class {
	switch status {
	case http.StatusBadRequest, http.StatusNotAcceptable, http.StatusLengthRequired, http.StatusRequestEntityTooLarge,
		http.StatusRequestURITooLong, http.StatusUnsupportedMediaType, http.StatusExpectationFailed,
		http.StatusUnprocessableEntity, http.StatusRequestHeaderFieldsTooLarge:
		return core.ClassPermanent
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusProxyAuthRequired, http.StatusRequestTimeout, http.StatusGone,
		http.StatusMisdirectedRequest, http.StatusLocked, http.StatusTooEarly, http.StatusUpgradeRequired,
		http.StatusPreconditionRequired, http.StatusTooManyRequests,
		http.StatusUnavailableForLegalReasons:
		return core.ClassUnavailable
	}
	if status > http.StatusInternalServerError || status/100 == 3 {
		return core.ClassUnavailable
	}
	return core.ClassTransient
}
