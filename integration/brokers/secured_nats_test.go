package brokers_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge"
)

// Three servers of NATS with TLS, client certificates and users. The stream is on all of them.
func TestSecuredNATS(t *testing.T) {
	if testing.Short() {
		return // `make test-all` runs it, once
	}
	t.Parallel()
	set := fixture.StartPrivateSet(t, "securenats1", "securenats2", "securenats3")
	c := certificatesOf(t, set[0])
	var addresses []string
	for _, s := range set {
		addresses = append(addresses, s.Address)
	}
	p := topics.NATSPublisher(t, natsbridge.Config{
		URL:     strings.Join(addresses, ","),
		Options: []nats.Option{nats.UserInfo("relay", "secret"), nats.Secure(c.config())},
	})
	conn, err := nats.Connect(strings.Join(addresses, ","), nats.UserInfo("admin", "secret"),
		nats.Secure(c.always("client")), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.RetryOnFailedConnect(true))
	fixture.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	fixture.NoError(t, err)
	s := &securedNATS{t: t, js: js, topic: "it." + core.NewEventID(), set: set}
	fixture.Await(t, "the cluster takes a stream", func() bool { return s.limit(0) == nil })
	flow := newSecuredFlow(t, "natsbridge", s.topic, p, s.held)
	checkSecured(t, []*securedFlow{flow}, []securedWay{
		{"the leader is killed", s.killLeader, func() { s.killed.Up(t) }, ""},
		{"the leader moves", s.moveLeader, func() {}, ""},
		{"all are killed", func() { s.each((*fixture.PrivateServer).Kill) }, func() {
			s.each((*fixture.PrivateServer).Up)
		}, "connection refused|no servers available"},
		{
			"an expired certificate of the servers", func() { fixture.Show(t, "expired", set...) },
			func() { fixture.Show(t, "server", set...) }, "certificate has expired",
		},
		{
			"a full stream", func() { // a limit below what the stream has would delete messages
				awaitSecured(t, []*securedFlow{flow}, "nothing is on its way")
				fixture.NoError(t, s.limit(int64(len(s.held(t)))))
			}, func() { fixture.NoError(t, s.limit(0)) },
			"maximum messages exceeded",
		},
	})
	for cause, cfg := range map[string]natsbridge.Config{
		"Authorization Violation": {Options: []nats.Option{nats.UserInfo("relay", "wrong"), nats.Secure(c.config())}},
		"remote error: tls: ": { // what the server says of the certificate
			Options: []nats.Option{nats.UserInfo("relay", "secret"), nats.Secure(c.always("expired"))},
		},
		"permissions violation": {
			Options: []nats.Option{nats.UserInfo("relay", "secret"), nats.Secure(c.config())},
			Stream:  func(string) string { return s.stream() }, // relay may publish to it.> alone
		},
	} {
		cfg.URL = strings.Join(addresses, ",")
		requireTold(t, topics.NATSPublisher(t, cfg), cause)
	}
	to := strings.ReplaceAll(strings.Join(addresses, ","), "tls://", "tls://relay:secret@")
	checkRelay(t, to+"?"+c.parameters(), s.topic, s.held)
}

type securedNATS struct {
	t      *testing.T
	js     jetstream.JetStream
	topic  string
	set    []*fixture.PrivateServer
	killed *fixture.PrivateServer
}

func (s *securedNATS) stream() string { return strings.ReplaceAll(s.topic, ".", "_") }

func (s *securedNATS) each(do func(*fixture.PrivateServer, *testing.T)) {
	for _, one := range s.set {
		do(one, s.t)
	}
}

// limit creates the stream, or limits how many messages it takes.
func (s *securedNATS) limit(messages int64) error {
	_, err := s.js.CreateOrUpdateStream(s.t.Context(), jetstream.StreamConfig{
		Name: s.stream(), Subjects: []string{s.topic}, Replicas: 3, MaxMsgs: messages, Discard: jetstream.DiscardNew,
	})
	return err
}

func (s *securedNATS) leader() string {
	stream, err := s.js.Stream(s.t.Context(), s.stream())
	if err != nil {
		return ""
	}
	return stream.CachedInfo().Cluster.Leader
}

func (s *securedNATS) killLeader() {
	s.t.Helper()
	leader := s.leader()
	for i, one := range s.set {
		if leader == fmt.Sprint("securenats", i+1) {
			s.killed = one
			one.Kill(s.t)
			return
		}
	}
	s.t.Fatalf("the leader is %q", leader)
}

func (s *securedNATS) moveLeader() {
	s.t.Helper()
	before := s.leader()
	fixture.Await(s.t, "another leader", func() bool {
		_, _ = s.js.Conn().Request("$JS.API.STREAM.LEADER.STEPDOWN."+s.stream(), nil, time.Second)
		now := s.leader()
		return now != "" && now != before
	})
}

func (s *securedNATS) held(t *testing.T) (all []heldMessage) {
	t.Helper()
	stream, err := s.js.Stream(t.Context(), s.stream())
	fixture.NoError(t, err)
	for seq := range stream.CachedInfo().State.LastSeq {
		raw, err := stream.GetMsg(t.Context(), seq+1)
		fixture.NoError(t, err)
		msg, err := (&wmnats.NATSMarshaler{}).Unmarshal(&nats.Msg{
			Subject: raw.Subject, Header: raw.Header, Data: raw.Data,
		})
		fixture.NoError(t, err)
		all = append(all, heldMessage{msg, fmt.Sprintf("%s@%d", s.stream(), seq+1)})
	}
	return all
}
