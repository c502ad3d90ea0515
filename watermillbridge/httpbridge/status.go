package httpbridge

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// ClassOfStatus returns the class of an answer with the given status, which is not 2xx:
//
//   - ClassPermanent for 400, 406, 410, 411, 413, 414, 415, 417, 422 and 431: this request will
//     never be accepted, or the receiver wants no more (410).
//   - ClassTransient for 409, 500 and any status that is not listed: the event or the moment may be
//     at fault. After core.Config.MaxAttempts the event is DEAD, unless the endpoint has accepted
//     nothing else meanwhile.
//   - ClassUnavailable for 1xx, redirects, 401, 402, 403, 404, 405, 407, 408, 421, 423, 425, 426,
//     428, 429, 451, 501 and all above: the endpoint has moved, throttles, is down, or rejects the
//     client's credentials. It costs no attempt.
func ClassOfStatus(status int) core.Class {
	switch status {
	case http.StatusBadRequest, http.StatusNotAcceptable, http.StatusGone, http.StatusLengthRequired,
		http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong, http.StatusUnsupportedMediaType,
		http.StatusExpectationFailed, http.StatusUnprocessableEntity, http.StatusRequestHeaderFieldsTooLarge:
		return core.ClassPermanent
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusProxyAuthRequired, http.StatusRequestTimeout,
		http.StatusMisdirectedRequest, http.StatusLocked, http.StatusTooEarly, http.StatusUpgradeRequired,
		http.StatusPreconditionRequired, http.StatusTooManyRequests,
		http.StatusUnavailableForLegalReasons:
		return core.ClassUnavailable
	}
	if status > http.StatusInternalServerError || status/100 == 3 || status/100 == 1 {
		return core.ClassUnavailable
	}
	return core.ClassTransient
}

// StatusError is the answer of an endpoint that did not accept a request. Its class is from
// ClassOfStatus.
type StatusError struct {
	Endpoint   string        // scheme and host
	Status     int           // such as 503
	RequestID  string        // as the endpoint names the request; empty: it does not
	RetryAfter time.Duration // as it was sent, at most Config.MaxRetryAfter; 0: none
	Body       string        // the first 200 bytes of the answer, without the endpoint's own headers
}

func (e *StatusError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "httpbridge: %s answered %d %s", e.Endpoint, e.Status, http.StatusText(e.Status))
	if e.Status/100 == 3 {
		b.WriteString(": redirects are not followed, set the URL to which it leads")
	}
	if e.RetryAfter > 0 {
		b.WriteString(", try again after " + e.RetryAfter.String())
	}
	if e.RequestID != "" {
		fmt.Fprintf(&b, ", request id %q", e.RequestID)
	}
	if e.Body != "" {
		fmt.Fprintf(&b, ": %q", e.Body)
	}
	return b.String()
}

// retryAfter reads the header Retry-After, in seconds or as a date, which counts from the clock of
// the endpoint. A number that is too large, too small or no integer means the nearest time that can
// be kept.
func retryAfter(h http.Header, limit time.Duration) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	seconds, err := strconv.ParseFloat(v, 64)
	if (err == nil || errors.Is(err, strconv.ErrRange)) && !math.IsNaN(seconds) { // beyond its range it is infinite
		return time.Duration(min(max(seconds, 0), limit.Seconds()) * float64(time.Second))
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return min(max(at.Sub(now), 0), limit)
}

// pauses reports whether an answer asks for a pause of the whole endpoint.
func pauses(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status > http.StatusInternalServerError
}
