package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/contract"
)

// answer is the response of a service.
type answer struct {
	status   int
	replayed bool
	body     string
}

func (a answer) String() string {
	text := fmt.Sprint(a.status)
	if a.replayed {
		text += ", replayed"
	}
	return text
}

// post sends a request of the tenant. key may be empty.
func post(ctx context.Context, url, key string, body any) (a answer, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return a, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(string(text)))
	if err != nil {
		return a, err
	}
	r.Header.Set("X-Tenant", tenant)
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header.Get("Idempotency-Replayed") == "true", string(read)}, err
}

// chairs is the usual quote.
var chairs = []contract.Line{
	{Line: 1, SKU: "chair", Quantity: 3, Cents: 4900},
	{Line: 2, SKU: "table", Quantity: 1, Cents: 19900},
}

// draft asks for a quote.
func (s *story) draft(ctx context.Context, id string, lines []contract.Line) error {
	a, err := post(ctx, s.quotes.url+"/quotes", "draft-"+id, map[string]any{
		"id": id, "customer": "ada@example.com", "lines": lines,
	})
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("draft of %s: %s %s", id, a, a.body)
	}
	return err
}

// accept accepts a quote, with an Idempotency-Key.
func (s *story) accept(ctx context.Context, id, key string) (answer, error) {
	return post(ctx, s.quotes.url+"/quotes/"+id+"/accept", key, struct{}{})
}

// order asks for a quote and accepts it.
func (s *story) order(ctx context.Context, id string) error {
	if err := s.draft(ctx, id, chairs); err != nil {
		return err
	}
	a, err := s.accept(ctx, id, "accept-"+id)
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("accept %s: %s %s", id, a, a.body)
	}
	return err
}

// acceptedEvent returns the QuoteAccepted of a quote as it is in the topic.
func (s *story) acceptedEvent(ctx context.Context, id string) (record, contract.QuoteAccepted, error) {
	records, err := s.cluster.find(ctx, contract.QuoteEvents, id)
	if err != nil {
		return record{}, contract.QuoteAccepted{}, err
	}
	if len(records) == 0 {
		return record{}, contract.QuoteAccepted{}, fmt.Errorf("the topic has no event of %s", id)
	}
	r := records[0]
	quote, err := contract.ReadQuoteAccepted(r.value, number(r.headers[core.HeaderSchemaVersion]), 2)
	return r, quote, err
}

// metric returns the sum of the series of the order service that have the name and all of the
// labels, such as `outcome="duplicate"`.
func (s *story) metric(ctx context.Context, name string, labels ...string) (sum float64, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.orders.url+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	for line := range strings.Lines(string(text)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, _, _ := strings.Cut(series, "{"); n != name ||
			slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(series, l) }) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", line, err)
		}
		sum += n
	}
	return sum, err
}
