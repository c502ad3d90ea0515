package franzbridge_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
)

// fakeBroker is a broker with the topic "orders" of three partitions, the last of which has no
// leader.
type fakeBroker struct {
	addr   string
	refuse func(partition int32, records int, batch []byte) *kerr.Error // nil: accept

	mu      sync.Mutex
	batches [][]byte // those that were accepted
}

// startBroker starts a fake broker at an address that is free.
func startBroker(t *testing.T, refuse func(partition int32, records int, batch []byte) *kerr.Error) *fakeBroker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, l, refuse)
}

func serve(t *testing.T, l net.Listener, refuse func(int32, int, []byte) *kerr.Error) *fakeBroker {
	t.Helper()
	b := &fakeBroker{addr: l.Addr().String(), refuse: refuse}
	var all sync.WaitGroup
	conns := make(chan net.Conn, 100)
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns <- c
			all.Go(func() { b.talk(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		for {
			select {
			case c := <-conns:
				c.Close()
				continue
			default:
			}
			break
		}
		all.Wait()
	})
	return b
}

// talk answers the requests of one connection.
func (b *fakeBroker) talk(c net.Conn) {
	defer c.Close()
	for {
		var size [4]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(c, body); err != nil {
			return
		}
		r := kbin.Reader{Src: body}
		key, version, correlation := r.Int16(), r.Int16(), r.Int32()
		req := kmsg.RequestForKey(key)
		r.NullableString() // the client's id
		req.SetVersion(version)
		if req.IsFlexible() {
			kmsg.SkipTags(&r)
		}
		if err := req.ReadFrom(r.Src); err != nil {
			return
		}
		resp := b.answer(req)
		if resp == nil { // never
			continue
		}
		resp.SetVersion(version)
		out := binary.BigEndian.AppendUint32(nil, uint32(correlation))
		if resp.IsFlexible() && key != 18 {
			out = append(out, 0)
		}
		out = resp.AppendTo(out)
		if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(out))), out...)); err != nil {
			return
		}
	}
}

func (b *fakeBroker) answer(req kmsg.Request) kmsg.Response {
	switch req := req.(type) {
	case *kmsg.ApiVersionsRequest:
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{
			{ApiKey: 0, MinVersion: 7, MaxVersion: 7},
			{ApiKey: 3, MinVersion: 7, MaxVersion: 7},
			{ApiKey: 17, MinVersion: 0, MaxVersion: 1},
			{ApiKey: 18, MinVersion: 0, MaxVersion: 3},
			{ApiKey: 22, MinVersion: 0, MaxVersion: 1},
			{ApiKey: 36, MinVersion: 0, MaxVersion: 1},
		}
		return resp
	case *kmsg.SASLHandshakeRequest:
		resp := kmsg.NewPtrSASLHandshakeResponse()
		resp.SupportedMechanisms = []string{"PLAIN"}
		return resp
	case *kmsg.SASLAuthenticateRequest: // no password is right
		resp := kmsg.NewPtrSASLAuthenticateResponse()
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		return resp
	case *kmsg.MetadataRequest:
		return b.metadata(req)
	case *kmsg.InitProducerIDRequest:
		resp := kmsg.NewPtrInitProducerIDResponse()
		resp.ProducerID, resp.ProducerEpoch = 7, max(req.ProducerEpoch+1, 0)
		return resp
	case *kmsg.ProduceRequest:
		return b.produce(req)
	}
	panic("unexpected request")
}

func (b *fakeBroker) metadata(req *kmsg.MetadataRequest) kmsg.Response {
	host, text, _ := net.SplitHostPort(b.addr)
	port, _ := strconv.Atoi(text)
	resp := kmsg.NewPtrMetadataResponse()
	broker := kmsg.NewMetadataResponseBroker()
	broker.NodeID, broker.Host, broker.Port = 1, host, int32(port)
	resp.Brokers, resp.ControllerID = append(resp.Brokers, broker), 1
	for _, topic := range req.Topics {
		mt := kmsg.NewMetadataResponseTopic()
		mt.Topic = topic.Topic
		if *topic.Topic != "orders" {
			mt.ErrorCode = kerr.UnknownTopicOrPartition.Code
			resp.Topics = append(resp.Topics, mt)
			continue
		}
		for n := range int32(3) {
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Partition, p.Leader, p.LeaderEpoch = n, 1, 1
			p.Replicas, p.ISR = []int32{1}, []int32{1}
			if n == 2 {
				p.Leader, p.ErrorCode = -1, kerr.LeaderNotAvailable.Code
			}
			mt.Partitions = append(mt.Partitions, p)
		}
		resp.Topics = append(resp.Topics, mt)
	}
	return resp
}

func (b *fakeBroker) produce(req *kmsg.ProduceRequest) kmsg.Response {
	b.mu.Lock()
	defer b.mu.Unlock()
	resp := kmsg.NewPtrProduceResponse()
	for _, topic := range req.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic = topic.Topic
		for _, p := range topic.Partitions {
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition = p.Partition
			records := int(binary.BigEndian.Uint32(p.Records[57:]))
			var refusal *kerr.Error
			if p.Partition == 2 {
				refusal = kerr.NotLeaderForPartition
			} else if b.refuse != nil {
				refusal = b.refuse(p.Partition, records, p.Records)
			}
			if refusal == silence {
				return nil
			}
			if refusal != nil {
				rp.ErrorCode = refusal.Code
			} else {
				rp.BaseOffset = int64(len(b.batches))
				b.batches = append(b.batches, bytes.Clone(p.Records))
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// silence makes the broker not answer.
var silence = &kerr.Error{Message: "SILENCE", Code: -99}

// These keys belong to partitions 0, 1 and 2 of 3, as the Java client computes them.
const key0, key1, key2 = "order/o-1", "order/o-2", "abcd"

func delivery(topic, key string) core.Delivery {
	e := core.Event{ID: core.NewEventID(), Type: "order.placed", Topic: topic, Key: key, Payload: []byte(`{"total":7}`)}
	id, err := core.NewRowID(e.ID, topic)
	if err != nil {
		panic(err)
	}
	return core.Delivery{Event: e, RowID: id, Attempt: 1}
}

// timeout is longer than the broker of this process takes while the machine is busy. It has a
// message that comes again twice.
const timeout = 20 * time.Second

func newPublisher(t *testing.T, cfg franzbridge.Config) *franzbridge.Publisher {
	t.Helper()
	if cfg.PublishTimeout == 0 {
		cfg.PublishTimeout = timeout
	}
	p, err := franzbridge.NewPublisher(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

// publishFor publishes with a deadline.
func publishFor(t *testing.T, p *franzbridge.Publisher, d core.Delivery, limit time.Duration) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return p.PublishWithReceipt(ctx, d)
}

func publish(t *testing.T, p *franzbridge.Publisher, d core.Delivery) (string, error) {
	t.Helper()
	return publishFor(t, p, d, time.Minute)
}
