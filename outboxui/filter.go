package outboxui

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// statuses are the choices of the filter, in the order of the form.
var statuses = []ops.Status{ops.StatusNew, ops.StatusRetry, ops.StatusDead, ops.StatusDone, ops.StatusDiscarded}

// filterNames are the fields of a filter, in an address and on the command line.
var filterNames = []string{
	"status", "topic", "type", "key", "since", "until", "tenant", "error-code", "group", "aggregate-type",
	"aggregate-id", "cause",
}

// filterOf reads a filter from the fields of a form. now is for ages such as 2h.
func filterOf(form url.Values, now time.Time) (f ops.Filter, err error) {
	get := func(name string) string { return strings.TrimSpace(form.Get(name)) }
	for _, name := range form["status"] {
		s, err := ops.ParseStatus(name)
		if err != nil {
			return f, refusal{http.StatusBadRequest, sentence(err)}
		}
		if !slices.Contains(f.Statuses, s) {
			f.Statuses = append(f.Statuses, s)
		}
	}
	f.Topic, f.Type, f.Key, f.TenantID = get("topic"), get("type"), get("key"), get("tenant")
	f.ErrorCode, f.Fingerprint, f.Cause = get("error-code"), get("group"), get("cause")
	f.AggregateType, f.AggregateID = get("aggregate-type"), get("aggregate-id")
	if f.CreatedFrom, err = momentOf(get("since"), now); err != nil {
		return f, err
	}
	f.CreatedBefore, err = momentOf(get("until"), now)
	return f, err
}

// momentOf reads a time, or how long ago it was: 2h, 7d.
func momentOf(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := spanOf(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, refusal{http.StatusBadRequest, "“" + cut(text, 60) +
		"” is no time: write one such as 2026-11-23T18:00:00Z, or how long ago, such as 2h or 7d."}
}

// spanOf reads a duration. Days are 7d.
func spanOf(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		hours, err := time.ParseDuration(days + "h")
		return 24 * hours, err
	}
	return time.ParseDuration(text)
}

// filterQuery is the filter of a form as fields of an address.
func filterQuery(form url.Values) url.Values {
	q := url.Values{}
	for _, name := range filterNames {
		for _, value := range form[name] {
			if value = strings.TrimSpace(value); value != "" {
				q.Add(name, value)
			}
		}
	}
	return q
}

// filterFlags is the filter of a form as flags of a command, without the statuses.
func filterFlags(form url.Values) (words []string) {
	for _, name := range filterNames {
		if value := strings.TrimSpace(form.Get(name)); value != "" && name != "status" {
			words = append(words, "--"+name, value)
		}
	}
	return words
}

// filled is the form of a list as the person has filled it in. The templates read it.
type filled struct{ Form url.Values }

// Get returns a field of the form.
func (f filled) Get(name string) string { return f.Form.Get(name) }
