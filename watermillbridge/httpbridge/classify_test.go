package httpbridge_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	wmhttp "github.com/ThreeDotsLabs/watermill-http/v2/pkg/http"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge/httpbridge"
)

// A server answers watermill-http's publisher with each status, and Classify judges the error.
func TestClassify(t *testing.T) {
	t.Parallel()
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	pub, err := wmhttp.NewPublisher(wmhttp.PublisherConfig{MarshalMessageFunc: wmhttp.DefaultMarshalMessageFunc}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for want, statuses := range map[core.Class][]int{
		core.ClassPermanent: {400, 406, 411, 413, 414, 415, 417, 422, 431},
		core.ClassTransient: {409, 418, 500},
		core.ClassUnavailable: {
			401, 402, 403, 404, 405, 407, 408, 410, 421, 423, 425, 426, 428, 429, 451, 501, 502,
			503, 504, 507, 511, 529,
		},
	} {
		for _, status = range statuses {
			err := pub.Publish(server.URL, message.NewMessage("1", nil))
			if err == nil {
				t.Fatalf("%d: published", status)
			}
			for _, err := range []error{err, fmt.Errorf("wrapped: %w", err)} {
				if got := httpbridge.Classify(err); got != want {
					t.Errorf("%d: %v, want %v", status, got, want)
				}
			}
		}
	}
	if got := httpbridge.ClassOfStatus(http.StatusFound); got != core.ClassUnavailable {
		t.Errorf("a redirect is %v", got)
	}

	server.Close()
	err = pub.Publish(server.URL, message.NewMessage("1", nil))
	if got := httpbridge.Classify(err); got != core.ClassTransient ||
		core.DefaultClassifier(err) != core.ClassUnavailable {
		t.Errorf("refused: %v, and %v by the default classifier", got, core.DefaultClassifier(err))
	}
	_ = pub.Close()
	if got := httpbridge.Classify(pub.Publish(server.URL, message.NewMessage("1", nil))); got != core.ClassUnavailable {
		t.Errorf("closed: %v", got)
	}
}

func ExampleClassOfStatus() {
	fmt.Println(httpbridge.ClassOfStatus(http.StatusServiceUnavailable),
		httpbridge.ClassOfStatus(http.StatusUnprocessableEntity))
	// Output: unavailable permanent
}
