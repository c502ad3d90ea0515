// Package remoteerr recognises errors of clients of other services that mean that the service is
// unavailable, without importing a client: by their methods, and without methods by their constant
// texts.
package remoteerr

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
)

// texts are errors without a type of their own, word for word.
var texts = map[string]bool{
	"circuit breaker is open":           true, // sony/gobreaker, and so Watermill's CircuitBreaker
	"too many requests":                 true, // sony/gobreaker, half open
	"circuit breaker open":              true, // failsafe-go
	"bulkhead full":                     true, // failsafe-go
	"rate limit exceeded":               true, // failsafe-go
	"hystrix: circuit open":             true, // hystrix-go
	"hystrix: max concurrency":          true, // hystrix-go
	"redis: connection pool timeout":    true, // go-redis
	"redis: connection pool exhausted":  true, // go-redis
	"redigo: connection pool exhausted": true, // redigo
}

// names are the codes of gRPC, Connect and Twirp, in lower case and without underscores.
var names = map[string]bool{"unavailable": true, "resourceexhausted": true}

// throttled are error codes of AWS and of services that imitate it.
var throttled = map[string]bool{
	"Throttling": true, "ThrottlingException": true, "ThrottledException": true, "RequestThrottled": true,
	"RequestThrottledException": true, "EC2ThrottledException": true, "TooManyRequestsException": true,
	"ProvisionedThroughputExceededException": true, "RequestLimitExceeded": true, "BandwidthLimitExceeded": true,
	"PriorRequestNotComplete": true, "SlowDown": true, "ServiceUnavailable": true, "ServiceUnavailableException": true,
}

// redis are the first words of replies of a Redis server that cannot serve now.
var redis = []string{
	"LOADING ", "CLUSTERDOWN ", "MASTERDOWN ", "READONLY ", "TRYAGAIN ", "NOREPLICAS ", "OOM ",
	"ERR max number of clients",
}

// Unavailable reports whether err, or an error that it wraps, means that a service is unavailable:
// it is down, it throttles, or a circuit breaker in front of it is open.
func Unavailable(err error) bool {
	for err != nil {
		if unavailable(err) {
			return true
		}
		switch u := err.(type) { //nolint:errorlint // this code itself unwraps
		case interface{ Unwrap() error }:
			err = u.Unwrap()
		case interface{ Unwrap() []error }:
			return slices.ContainsFunc(u.Unwrap(), Unavailable)
		default:
			return false
		}
	}
	return false
}

func unavailable(err error) bool {
	v := reflect.ValueOf(err)
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return false // a typed nil, whose methods panic
	}
	text := err.Error()
	if texts[text] {
		return true
	}
	switch e := err.(type) { //nolint:errorlint // one error of the tree
	case interface{ HTTPStatusCode() int }: // smithy, the AWS SDK
		switch e.HTTPStatusCode() {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
			http.StatusGatewayTimeout:
			return true
		}
	case interface{ ErrorCode() string }: // smithy, the AWS SDK
		return throttled[e.ErrorCode()]
	case interface{ RedisError() }: // go-redis
		for _, word := range redis {
			if strings.HasPrefix(text, word) {
				return true
			}
		}
		return false
	}
	if status, ok := call(v, v.MethodByName("GRPCStatus")); ok {
		v = status
	}
	code, ok := call(v, v.MethodByName("Code")) // of gRPC's Status, and of errors of Connect and Twirp
	return ok && names[strings.ToLower(strings.ReplaceAll(fmt.Sprint(code.Interface()), "_", ""))]
}

// call calls a method that takes nothing and returns one value.
func call(of, method reflect.Value) (result reflect.Value, ok bool) {
	if !of.IsValid() || !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
		return reflect.Value{}, false
	}
	result = method.Call(nil)[0]
	return result, result.IsValid() && result.CanInterface() && (result.Kind() != reflect.Pointer || !result.IsNil())
}
