package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// rabbitAPI is the management API of RabbitMQ.
type rabbitAPI struct {
	*report
	base   *url.URL
	vhost  string
	client *http.Client
}

// rabbitExchange is an exchange, as far as it matters here.
type rabbitExchange struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Durable    bool   `json:"durable"`
	AutoDelete bool   `json:"auto_delete"`
}

type rabbitBinding struct {
	Destination     string `json:"destination"`
	DestinationType string `json:"destination_type"`
	RoutingKey      string `json:"routing_key"`
}

// rabbitQueue is a queue, as far as it matters here.
type rabbitQueue struct {
	Name       string         `json:"name"`
	Type       string         `json:"type"`
	Durable    bool           `json:"durable"`
	AutoDelete bool           `json:"auto_delete"`
	Exclusive  bool           `json:"exclusive"`
	Arguments  map[string]any `json:"arguments"`
	Policy     map[string]any `json:"effective_policy_definition"`
	Members    []string       `json:"members"` // of a quorum queue
	// DeliveryLimit is the limit of a quorum queue of RabbitMQ 4: a number, or "unlimited".
	DeliveryLimit any `json:"delivery_limit"`
}

// set returns a setting of the queue: from its arguments, else from its policies.
func (q rabbitQueue) set(name string) any {
	if v, ok := q.Arguments["x-"+name]; ok {
		return v
	}
	return q.Policy[name]
}

// deliveryLimit is the limit in force. RabbitMQ 4 has one by default. A negative limit is none.
func (q rabbitQueue) deliveryLimit() (limit float64, limited bool) {
	v := q.DeliveryLimit
	if v == nil {
		v = q.set("delivery-limit")
	}
	limit, limited = v.(float64)
	return limit, limited && limit >= 0
}

// comparedArguments are arguments that RabbitMQ compares with a declaration's.
var comparedArguments = []string{
	"x-dead-letter-exchange", "x-dead-letter-routing-key", "x-expires", "x-max-length", "x-max-length-bytes",
	"x-max-priority", "x-message-ttl", "x-overflow", "x-queue-mode", "x-single-active-consumer",
}

// differs returns why RabbitMQ refuses a declaration of the queue with this type and without other
// arguments, or "".
func (q rabbitQueue) differs(kind string) string {
	switch {
	case q.Type != kind:
		return "its x-queue-type is '" + q.Type + "'"
	case !q.Durable:
		return "it is not durable"
	case q.Exclusive:
		return "it is exclusive"
	case q.AutoDelete:
		return "it is removed with its last consumer"
	}
	for _, name := range comparedArguments {
		if v, ok := q.Arguments[name]; ok {
			return fmt.Sprintf("its argument %s is %v", name, v)
		}
	}
	return ""
}

// get reads a thing of the virtual host. It returns false if there is none.
func (a rabbitAPI) get(ctx context.Context, v any, path ...string) (found bool, err error) {
	escaped := []string{"api", path[0], url.PathEscape(a.vhost)}
	for _, p := range path[1:] {
		escaped = append(escaped, url.PathEscape(p))
	}
	u := *a.base
	u.User = nil
	address := strings.TrimSuffix(u.String(), "/") + "/" + strings.Join(escaped, "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return false, err
	}
	if user := a.base.User; user != nil {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return false, nil
	default:
		return false, fmt.Errorf("the management API of RabbitMQ answers %s: it needs a user with the tag management "+
			"and rights on the virtual host", resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, rabbitAnswer)).Decode(v); err != nil {
		return false, fmt.Errorf("the management API of RabbitMQ: %w", err)
	}
	return true, nil
}

// examine follows each topic to its queues, and judges all that it meets.
func (a rabbitAPI) examine(ctx context.Context, targets []rabbitTarget) error {
	var vhost struct {
		DefaultType string `json:"default_queue_type"`
	}
	if _, err := a.get(ctx, &vhost, "vhosts"); err != nil {
		return err
	}
	exchanges, queues := map[string]rabbitExchange{}, map[string]bool{}
	declared := map[string]rabbitTarget{} // queues that the relay declares
	for _, t := range targets {
		if t.exchange == "" {
			if t.args == nil && slices.Contains([]string{"quorum", "stream"}, vhost.DefaultType) {
				t.kind = vhost.DefaultType
			}
			queues[t.key], declared[t.key] = true, t
			continue
		}
		reached := map[string]bool{}
		found, err := a.follow(ctx, t.exchange, t.key, rabbitDepth, exchanges, reached)
		switch {
		case err != nil:
			return err
		case !found:
			t.missing(a.report)
		case len(reached) == 0:
			a.warn("no queue of RabbitMQ takes events of "+short(t.topic),
				"its events wait, or are dead after one was taken before; with AllowUnroutable they are lost",
				"start the consumer, which binds its queue, or bind a durable one")
		}
		maps.Copy(queues, reached)
	}
	for _, name := range slices.Sorted(maps.Keys(exchanges)) {
		a.judgeExchange(exchanges[name])
		i := slices.IndexFunc(targets, func(t rabbitTarget) bool { return t.exchange == name })
		if i >= 0 && exchanges[name].Type != targets[i].kind {
			targets[i].refused(a.report, "its type is '"+exchanges[name].Type+"'")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		var q rabbitQueue
		found, err := a.get(ctx, &q, "queues", name)
		switch {
		case err != nil:
			return err
		case !found:
			rabbitTarget{topic: name, key: name}.missing(a.report)
		default:
			a.all = append(a.all, judgeQueue(q)...)
			if t, ok := declared[name]; ok && q.differs(t.kind) != "" {
				t.refused(a.report, q.differs(t.kind))
			}
		}
	}
	a.otherwise(fmt.Sprintf("%d queues of RabbitMQ keep what they have accepted", len(queues)))
	return nil
}

// follow collects the exchanges and the queues that an event with the routing key reaches. It
// returns false if there is no such exchange.
func (a rabbitAPI) follow(ctx context.Context, name, key string, depth int, exchanges map[string]rabbitExchange,
	queues map[string]bool,
) (found bool, err error) {
	var e rabbitExchange
	if found, err = a.get(ctx, &e, "exchanges", name); err != nil || !found {
		return found, err
	}
	exchanges[name] = e
	var bindings []rabbitBinding
	if _, err := a.get(ctx, &bindings, "exchanges", name, "bindings", "source"); err != nil {
		return true, err
	}
	for _, b := range bindings {
		switch {
		case !routes(e.Type, b.RoutingKey, key):
		case b.DestinationType == "queue":
			queues[b.Destination] = true
		case depth > 1:
			if _, err := a.follow(ctx, b.Destination, key, depth-1, exchanges, queues); err != nil {
				return true, err
			}
		}
	}
	return true, nil
}

// routes reports whether a binding takes a routing key.
func routes(exchangeType, pattern, key string) bool {
	switch exchangeType {
	case "direct":
		return pattern == key
	case "topic":
		return matches(strings.Split(pattern, "."), strings.Split(key, "."))
	}
	return true
}

// matches reports whether the words of a routing key match a pattern, in which * is a word and # is
// any number of words.
func matches(pattern, words []string) bool {
	switch {
	case len(pattern) == 0:
		return len(words) == 0
	case pattern[0] == "#":
		return matches(pattern[1:], words) || len(words) > 0 && matches(pattern, words[1:])
	}
	return len(words) > 0 && (pattern[0] == "*" || pattern[0] == words[0]) && matches(pattern[1:], words[1:])
}

// judgeExchange reports settings of an exchange that lose events.
func (a rabbitAPI) judgeExchange(e rabbitExchange) {
	what := "is not durable: a restart of RabbitMQ removes it"
	switch {
	case !e.Durable:
	case e.AutoDelete:
		what = "is removed with its last binding"
	default:
		return
	}
	a.warn(fmt.Sprintf("exchange %s %s", short(e.Name), what),
		"its bindings go with it: events reach no queue, or not all queues, from then on",
		"delete it while nothing is published, and declare it durable and without auto-delete")
}

// judgeQueue reports settings of a queue that lose events which it has accepted.
func judgeQueue(q rabbitQueue) []finding {
	r := report{check: "broker"}
	warn := func(found, cause, fix string) { r.warn("queue "+short(q.Name)+" "+found, cause, fix) }
	const again = "its settings cannot be changed: declare another queue, bind it, and let consumers empty this one"
	switch {
	case !q.Durable:
		warn("is not durable", "a restart of RabbitMQ removes it and its messages", again)
	case q.Exclusive:
		warn("is exclusive", "it and its messages are removed with the connection of its consumer", again)
	case q.AutoDelete:
		warn("is removed with its last consumer", "its messages go with it, and later events do not reach it", again)
	case q.set("ha-mode") != nil:
		warn("is a mirrored classic queue",
			"a mirror that takes over may lack messages that were confirmed; RabbitMQ 4 has no mirrors",
			"use a quorum queue (x-queue-type=quorum); "+again)
	case q.Type == "classic":
		warn("is a classic queue", "one node has its messages, and they are lost with the disk of that node",
			"use a quorum queue (x-queue-type=quorum) on three nodes; "+again)
	case q.Type == "quorum" && len(q.Members) == 1:
		warn("has one member", "one node has its messages, and they are lost with the disk of that node",
			"give it members on three nodes: `rabbitmq-queues grow`")
	}
	if v := q.set("expires"); v != nil {
		warn(fmt.Sprintf("is removed after %s without a consumer", millis(v)),
			"a consumer that is down for so long loses all its messages", "remove x-expires (policy: expires)")
	}
	if q.Type == "stream" || q.set("dead-letter-exchange") != nil { // messages are not dropped, they move
		return r.all
	}
	const letters = ", or give the queue a dead-letter exchange with a durable queue"
	if v := q.set("message-ttl"); v != nil {
		warn("drops messages after "+millis(v), "a consumer that is slower or down loses events",
			"remove x-message-ttl (policy: message-ttl)"+letters)
	}
	limited := q.set("max-length") != nil || q.set("max-length-bytes") != nil
	if overflow, _ := q.set("overflow").(string); limited && !strings.HasPrefix(overflow, "reject-publish") {
		warn("drops its oldest messages when it is full (x-overflow=drop-head)", "a backlog of consumers loses events",
			"set x-overflow=reject-publish (policy: overflow), with which events wait in the outbox"+letters)
	}
	if limit, limited := q.deliveryLimit(); limited {
		warn(fmt.Sprintf("drops a message after %v deliveries", limit),
			"restarts of consumers count, and each pause of an inbox whose database is down: then events are lost",
			"remove the delivery limit; for RabbitMQ 4, which has one by default, set the policy delivery-limit to -1"+
				letters)
	}
	return r.all
}

// millis is a duration in milliseconds, as JSON has it.
func millis(v any) string {
	if ms, ok := v.(float64); ok {
		return age(time.Duration(ms) * time.Millisecond)
	}
	return fmt.Sprint(v)
}
