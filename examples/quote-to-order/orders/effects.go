package orders

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/command"
)

// Channels of effects: calls to the outside, which no transaction can roll back. The decision for a
// call commits with the order, and a worker calls until the other side has taken it.
const (
	channelFulfilment = "fulfilment"
	channelMail       = "mail"
)

type fulfilmentRequest struct {
	Tenant   string `json:"tenant"`
	OrderID  string `json:"order_id"`
	Line     int    `json:"line"`
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
}

type mail struct {
	To         string    `json:"to"`
	Subject    string    `json:"subject"`
	AcceptedAt time.Time `json:"accepted_at"` // when the customer began to wait
}

// outside calls the systems of others.
type outside struct {
	url     string
	latency *latency
}

func (o outside) handlers() map[string]command.Handler {
	return map[string]command.Handler{channelFulfilment: o.fulfil, channelMail: o.send}
}

func (o outside) fulfil(ctx context.Context, e command.Effect) (reference string, err error) {
	return o.post(ctx, "/fulfilment", e)
}

func (o outside) send(ctx context.Context, e command.Effect) (reference string, err error) {
	if reference, err = o.post(ctx, "/mail", e); err != nil {
		return "", err
	}
	var m mail
	if err := json.Unmarshal(e.Payload, &m); err == nil {
		o.latency.notified(time.Since(m.AcceptedAt))
	}
	return reference, nil
}

// post calls the other side with the key of the effect. If an answer is lost, the same key comes
// again, and the other side does its work once.
func (o outside) post(ctx context.Context, path string, e command.Effect) (reference string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url+path, bytes.NewReader(e.Payload))
	if err != nil {
		return "", core.Permanent(err)
	}
	r.Header.Set("Content-Type", e.ContentType)
	r.Header.Set("Idempotency-Key", e.IdempotencyKey())
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err // a refused connection is an outage, and costs no attempt
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	switch code := response.StatusCode; {
	case err != nil:
		return "", err
	case code < 300:
		return strings.TrimSpace(string(text)), nil
	case code == http.StatusServiceUnavailable:
		return "", core.Unavailable(fmt.Errorf("%s: %s", path, response.Status))
	case code >= 500, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		return "", fmt.Errorf("%s: %s", path, response.Status)
	default:
		return "", core.Permanent(fmt.Errorf("%s: %s", path, response.Status)) // a person has to look at it
	}
}
