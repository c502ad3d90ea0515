package httpbridge

import (
	"net/http"

	wmhttp "github.com/ThreeDotsLabs/watermill-http/v2/pkg/http"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
)

// MarshalCloudEvent makes the request of a CloudEvent, for http.PublisherConfig.MarshalMessageFunc
// of watermill-http. The Publisher needs watermillbridge.Config.CloudEvents with Binding
// cloudevents.HTTP. The request is that of http.DefaultMarshalMessageFunc, so that a Watermill
// subscriber understands it too. It also has the headers of the CloudEvent, Content-Type, and
// traceparent and tracestate of the message.
func MarshalCloudEvent(url string, msg *message.Message) (*http.Request, error) {
	req, err := wmhttp.DefaultMarshalMessageFunc(url, msg)
	if err != nil {
		return nil, err
	}
	for name, v := range msg.Metadata {
		switch {
		case cloudevents.HTTP.Owns(name), name == core.HeaderContentType, name == "traceparent", name == "tracestate":
			req.Header.Set(name, v)
		}
	}
	return req, nil
}
