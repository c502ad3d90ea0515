package remoteerr_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ormoutbox/ormoutbox/core/internal/remoteerr"
)

type (
	grpcCode   uint32
	grpcStatus struct{ code grpcCode }
	grpcError  struct{ status *grpcStatus }

	twirpCode  string
	twirpError struct{ code twirpCode }

	awsError    struct{ code string }
	awsResponse struct{ status int }
	redisError  string
	sqliteError int
)

func (c grpcCode) String() string            { return map[grpcCode]string{14: "Unavailable", 5: "NotFound"}[c] }
func (s *grpcStatus) Code() grpcCode         { return s.code }
func (e *grpcError) GRPCStatus() *grpcStatus { return e.status }
func (*grpcError) Error() string             { return "rpc error" }
func (e twirpError) Code() twirpCode         { return e.code }
func (twirpError) Error() string             { return "twirp error" }
func (e awsError) ErrorCode() string         { return e.code }
func (awsError) Error() string               { return "api error" }
func (e awsResponse) HTTPStatusCode() int    { return e.status }
func (awsResponse) Error() string            { return "response error" }
func (redisError) RedisError()               {}
func (e redisError) Error() string           { return string(e) }
func (e sqliteError) Code() int              { return int(e) }
func (sqliteError) Error() string            { return "constraint failed" }

// Real clients have their tests in module integration.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nil":                       {nil, false},
		"breaker":                   {errors.New("circuit breaker is open"), true},
		"wrapped":                   {fmt.Errorf("pay: %w", errors.New("too many requests")), true},
		"joined":                    {errors.Join(errors.New("a"), errors.New("redis: connection pool timeout")), true},
		"a text that only mentions": {errors.New("too many requests of this kind in the order"), false},
		"grpc unavailable":          {&grpcError{&grpcStatus{14}}, true},
		"grpc not found":            {&grpcError{&grpcStatus{5}}, false},
		"grpc without a status":     {&grpcError{}, false},
		"typed nil":                 {(*grpcError)(nil), false},
		"twirp":                     {twirpError{"resource_exhausted"}, true},
		"twirp not found":           {twirpError{"not_found"}, false},
		"aws":                       {awsError{"ThrottlingException"}, true},
		"aws validation":            {awsError{"ValidationException"}, false},
		"status 503":                {awsResponse{503}, true},
		"status 404":                {awsResponse{404}, false},
		"redis loading":             {redisError("LOADING Redis is loading the dataset in memory"), true},
		"redis wrong type":          {redisError("WRONGTYPE Operation against a key"), false},
		"sqlite":                    {sqliteError(19), false},
	} {
		if got := remoteerr.Unavailable(c.err); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
