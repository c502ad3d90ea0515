package amqpbridge

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/rabbitmq/amqp091-go"
)

// severalTimeout bounds connecting to each of several servers, handshake included.
const severalTimeout = 4 * time.Second

// servers are the servers of one cluster. Each connection begins with the server after the last
// tried one, so that a server that answers and then fails is not tried twice in a row.
type servers struct {
	addresses []string
	next      atomic.Uint32
}

// connectionTo is a connection to uri, in which several hosts are separated by commas. Both this
// package and Watermill connect with the result.
func connectionTo(uri string) amqp.ConnectionConfig {
	before, hosts, after := splitHosts(uri)
	if len(hosts) < 2 {
		return amqp.ConnectionConfig{AmqpURI: uri}
	}
	var s servers
	for _, host := range hosts {
		one, err := amqp091.ParseURI(before + host + after)
		if err != nil {
			return amqp.ConnectionConfig{AmqpURI: uri} // NewPublisher returns its error
		}
		s.addresses = append(s.addresses, net.JoinHostPort(one.Host, strconv.Itoa(one.Port)))
	}
	return amqp.ConnectionConfig{
		AmqpURI:    before + hosts[0] + after,
		AmqpConfig: &amqp091.Config{Locale: "en_US", Heartbeat: heartbeat, Dial: s.dial},
	}
}

// splitHosts takes the hosts out of scheme://user:password@host:5672,host:5672/vhost?query.
func splitHosts(uri string) (before string, hosts []string, after string) {
	scheme, rest, found := strings.Cut(uri, "://")
	if !found {
		return "", nil, uri
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	authority, after := rest[:end], rest[end:]
	at := strings.LastIndexByte(authority, '@') + 1
	for host := range strings.SplitSeq(authority[at:], ",") {
		hosts = append(hosts, strings.TrimSpace(host))
	}
	return scheme + "://" + authority[:at], hosts, after
}

// dial connects to the first server that answers. It does what amqp091.DefaultDial does.
func (s *servers) dial(network, _ string) (net.Conn, error) {
	deadline := time.Now().Add(severalTimeout)
	each := net.Dialer{Timeout: severalTimeout / time.Duration(len(s.addresses))}
	var failed error
	for range s.addresses {
		address := s.addresses[int(s.next.Add(1)-1)%len(s.addresses)]
		conn, err := each.DialContext(context.Background(), network, address)
		if err == nil {
			err = conn.SetDeadline(deadline) // for the handshake, after which the client clears it
		}
		switch {
		case err == nil:
			return conn, nil
		case failed == nil:
			failed = err
		default:
			failed = fmt.Errorf("%w; %w", failed, err)
		}
	}
	return nil, failed
}
