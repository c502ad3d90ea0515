package franzbridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
)

// Errors of a PoisonQueue that callers branch on with errors.Is.
var (
	// ErrGroupInUse: a consumer reads with the group, so that the offsets of the group are its own.
	// Choose another group.
	ErrGroupInUse = errors.New("franzbridge: a consumer is running in this group: choose another group")

	// ErrManyKept: the group cannot remember more messages that were released behind kept ones.
	// Release the messages at the head of the topic first.
	ErrManyKept = errors.New("franzbridge: too many messages were kept between released ones: release the messages " +
		"at the head of the topic first")
)

// PoisonQueue is a topic with messages that consumers gave up. It reads the messages that were there
// when it was opened. A consumer group remembers which of them were acknowledged, beside each other
// or not, so that the others keep their places. Several queues may use one group at once; each of
// them then has all messages.
type PoisonQueue struct {
	client *kgo.Client
	admin  *kadm.Client
	topic  string
	group  string
	parts  map[int32]*partition
	read   []*kgo.Record
	last   *kgo.Record // the last result of Next, until it is acknowledged
}

var _ inbox.Queue = (*PoisonQueue)(nil)

// partition is how far a partition was read.
type partition struct {
	released
	next, end int64
	kept      bool   // a message was kept, so the floor stays
	metadata  string // of the last commit
}

// OpenPoisonQueue connects, and opens a topic. group remembers the released messages; no consumer
// may read with it. A topic that the cluster does not have is an error. Of cfg it uses Brokers,
// ClientID, PublishTimeout and Options. The error may wrap ErrGroupInUse.
func OpenPoisonQueue(ctx context.Context, cfg Config, topic, group string) (*PoisonQueue, error) {
	if topic == "" || group == "" {
		return nil, errors.New("franzbridge: a poison queue needs a topic and a group")
	}
	cfg.PublishTimeout = cmp.Or(cfg.PublishTimeout, defaultPublishTimeout)
	cfg.ClientID = cmp.Or(cfg.ClientID, "ormoutbox")
	client, err := cfg.client(
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // the last record may be one
	)
	if err != nil {
		return nil, err
	}
	q := &PoisonQueue{
		client: client, admin: kadm.NewClient(client), topic: topic, group: group, parts: map[int32]*partition{},
	}
	if err := q.open(ctx); err != nil {
		client.Close()
		err = fmt.Errorf("franzbridge: open the poison queue %q with group %q: %w", topic, group, err)
		return nil, mark(err, false)
	}
	return q, nil
}

func (q *PoisonQueue) open(ctx context.Context) error {
	// Without the right to ask, Ack returns the error.
	if groups, err := q.admin.DescribeGroups(ctx, q.group); err == nil && len(groups[q.group].Members) > 0 {
		return ErrGroupInUse
	}
	starts, err := q.admin.ListStartOffsets(ctx, q.topic)
	if err := cmp.Or(err, starts.Error()); err != nil {
		return err
	}
	ends, err := q.admin.ListCommittedOffsets(ctx, q.topic)
	if err := cmp.Or(err, ends.Error()); err != nil {
		return err
	}
	committed, err := q.committed(ctx)
	if err != nil {
		return err
	}
	from := map[int32]kgo.Offset{}
	starts.Each(func(start kadm.ListedOffset) {
		p := &partition{}
		if o, ok := committed.Lookup(q.topic, start.Partition); ok && o.At >= 0 {
			p.released = readReleased(o.At, o.Metadata)
		}
		p.raise(start.Offset)
		p.next = p.floor
		if end, ok := ends.Lookup(q.topic, start.Partition); ok {
			p.end = end.Offset
		}
		if p.next < p.end {
			q.parts[start.Partition] = p
			from[start.Partition] = kgo.NewOffset().At(p.next)
		}
	})
	q.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{q.topic: from})
	return nil
}

// committed returns the group's committed offsets.
func (q *PoisonQueue) committed(ctx context.Context) (kadm.OffsetResponses, error) {
	all, err := q.admin.FetchOffsetsForTopics(ctx, q.group, q.topic)
	if err == nil {
		err = all.Error()
	}
	return all, err
}

// longestMetadata is below offset.metadata.max.bytes of the broker, 4096, by the room for a message
// or two.
const longestMetadata = 4096 - 64

// Next implements inbox.Queue. Its error may wrap ErrManyKept.
func (q *PoisonQueue) Next(ctx context.Context) (inbox.Message, error) {
	if q.last != nil {
		q.parts[q.last.Partition].kept = true
		q.last = nil
	}
	for {
		for len(q.read) > 0 {
			r := q.read[0]
			q.read = q.read[1:]
			p := q.parts[r.Partition]
			if p == nil || r.Offset >= p.end {
				continue
			}
			p.next = r.Offset + 1
			if r.Attrs.IsControl() || p.has(r.Offset) {
				continue
			}
			if len(p.metadata) > longestMetadata {
				return inbox.Message{}, fmt.Errorf("%w: partition %d of %q, from offset %d on", ErrManyKept,
					r.Partition, q.topic, p.floor)
			}
			q.last = r
			return parked(r), nil
		}
		if !q.more() {
			return inbox.Message{}, io.EOF
		}
		if err := q.poll(ctx); err != nil {
			return inbox.Message{}, err
		}
	}
}

// more reports whether a partition was not read to its end.
func (q *PoisonQueue) more() bool {
	for _, p := range q.parts {
		if p.next < p.end {
			return true
		}
	}
	return false
}

const (
	readAtOnce   = 500
	readPatience = 30 * time.Second // for a cluster that answers nothing
)

func (q *PoisonQueue) poll(ctx context.Context) error {
	waiting, stop := context.WithTimeout(ctx, readPatience)
	defer stop()
	fetched := q.client.PollRecords(waiting, readAtOnce)
	q.read = fetched.Records()
	if len(q.read) > 0 {
		return nil
	}
	err := fetched.Err()
	for _, e := range fetched.Errors() {
		err = cmp.Or(err, e.Err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return mark(fmt.Errorf("franzbridge: read topic %q: %w", q.topic, cmp.Or(err, errNoAnswer)), false)
}

// parked returns a record as the subscriber of kafkabridge does, without its place.
func parked(r *kgo.Record) inbox.Message {
	msg := inbox.Message{Headers: make(map[string]string, len(r.Headers)+1), Payload: r.Value, Raw: r}
	for _, h := range r.Headers {
		if h.Key == uuidHeader {
			msg.UUID = string(h.Value)
			continue
		}
		msg.Headers[h.Key] = string(h.Value)
	}
	if key := string(r.Key); key != "" && msg.Headers[core.HeaderPartitionKey] == "" && utf8.ValidString(key) {
		msg.Headers[core.HeaderPartitionKey] = key
	}
	return msg
}

// Ack implements inbox.Queue. Its error may wrap ErrGroupInUse.
func (q *PoisonQueue) Ack(ctx context.Context, msg inbox.Message) error {
	r, ok := msg.Raw.(*kgo.Record)
	if !ok || q.last != r {
		return fmt.Errorf("franzbridge: the message is not the last one of topic %q", q.topic)
	}
	q.last = nil
	p := q.parts[r.Partition]
	if p.kept {
		p.add(span{r.Offset, r.Offset + 1})
	} else {
		p.raise(r.Offset + 1)
	}
	err := q.commit(ctx, r.Partition, p)
	if errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.IllegalGeneration) ||
		errors.Is(err, kerr.RebalanceInProgress) {
		err = fmt.Errorf("%w: %w", ErrGroupInUse, err)
	}
	if err != nil {
		err = fmt.Errorf("franzbridge: remember offset %d of %q/%d in group %q: %w", r.Offset, q.topic, r.Partition,
			q.group, err)
		return mark(err, false)
	}
	return nil
}

// commit writes the released offsets into the group, merged with those of other releases.
func (q *PoisonQueue) commit(ctx context.Context, number int32, p *partition) error {
	committed, err := q.committed(ctx)
	if err != nil {
		return err
	}
	if o, ok := committed.Lookup(q.topic, number); ok && o.At >= 0 {
		p.merge(readReleased(o.At, o.Metadata))
	}
	p.metadata = p.text()
	var all kadm.Offsets
	all.Add(kadm.Offset{Topic: q.topic, Partition: number, At: p.floor, LeaderEpoch: -1, Metadata: p.metadata})
	return q.admin.CommitAllOffsets(ctx, q.group, all)
}

// Close disconnects.
func (q *PoisonQueue) Close() error {
	q.client.Close()
	return nil
}
