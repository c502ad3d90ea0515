package walrelay

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/ormoutbox/ormoutbox/core"
)

// logged makes the messages that the server sends for the inserts of n events, each in a
// transaction of its own.
func logged(n, keys int) (r *relation, inserts [][]byte) {
	names := slices.Sorted(maps.Keys(columns))
	m := &pglogrepl.RelationMessage{}
	for _, name := range names {
		m.Columns = append(m.Columns, &pglogrepl.RelationMessageColumn{Name: name})
	}
	r, err := newRelation(m)
	if err != nil {
		panic(err)
	}
	number := func(v uint64, size int) []byte { return binary.BigEndian.AppendUint64(nil, v)[8-size:] }
	for i := range n {
		id := core.RowID{15: 1}
		binary.BigEndian.PutUint64(id[:], uint64(i))
		lane := core.KeyID{15: 1}
		binary.BigEndian.PutUint64(lane[:], uint64(i%max(1, keys)))
		values := map[string][]byte{
			"id": id[:], "event_id": fmt.Appendf(nil, "01ARZ3NDEKTSV4RRFFQ69%05d", i),
			"event_type": []byte("order.placed"),
			"topic":      []byte("orders"), "content_type": []byte("application/json"), "schema_version": number(0, 4),
			"aggregate_version": number(0, 8), "status": number(1, 2), "claimed_by": []byte(core.LogReader),
			"occurred_at": number(1, 8), "created_at": number(1, 8), "payload": make([]byte, 512),
			"headers": []byte("\x01{\"traceparent\": \"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\"}"),
		}
		if keys > 0 {
			values["lane"], values["key_seq"] = lane[:], number(uint64(i/keys+1), 8)
			values["partition_key"] = fmt.Appendf(nil, "order/%05d", i%keys)
		}
		b := []byte{'I', 0, 0, 0, 1, 'N', 0, byte(len(names))}
		for _, name := range names {
			v, ok := values[name]
			if !ok {
				b = append(b, 'n')
				continue
			}
			b = append(append(b, 'b'), number(uint64(len(v)), 4)...)
			b = append(b, v...)
		}
		inserts = append(inserts, b)
	}
	return r, inserts
}

func BenchmarkDecode(b *testing.B) {
	r, inserts := logged(1000, 100)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		row, err := r.read(inserts[i%len(inserts)])
		if err != nil {
			b.Fatal(err)
		}
		_ = row.event(time.Time{})
	}
}

// BenchmarkWindow measures the cost of an event from the socket to the publisher, and back.
func BenchmarkWindow(b *testing.B) {
	for _, keys := range []int{0, 1000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			r, inserts := logged(20_000, keys)
			b.ReportAllocs()
			s := &session{relations: map[uint32]*relation{1: r}, Relay: &Relay{}}
			s.window = newWindow(1<<20, 1<<40, func(string) bool { return false })
			repo := &repository{}
			repo.source.Store(&source{window: s.window})
			repo.askedAt = [2]time.Time{time.Now().Add(time.Hour), time.Now().Add(time.Hour)}
			begin, commit := make([]byte, 21), make([]byte, 26)
			begin[0], commit[0] = 'B', 'C'
			lsn, left := uint64(0), 0
			now := time.Now()
			no := int64(0)
			for i := 0; b.Loop(); i++ {
				lsn += 100
				binary.BigEndian.PutUint64(begin[1:], lsn)
				binary.BigEndian.PutUint64(commit[2:], lsn)
				binary.BigEndian.PutUint64(commit[10:], lsn+10)
				for _, m := range [][]byte{begin, inserts[i%len(inserts)], commit} {
					if err := s.logical(m, now); err != nil {
						b.Fatal(err)
					}
				}
				if left++; left < 64 {
					continue
				}
				left = 0
				for {
					no++
					req := core.ClaimRequest{Limit: 1024, MaxBytes: 1 << 30, Run: 32, ClaimNo: no}
					var rows []core.Claimed
					if keys == 0 {
						rows, _ = repo.ClaimUnordered(context.Background(), req)
					} else {
						rows, _, _ = repo.ClaimHeads(context.Background(), req, core.KeyID{})
					}
					if len(rows) == 0 {
						break
					}
					done := make([]core.Done, len(rows))
					for i := range rows {
						done[i] = core.Done{ID: rows[i].ID}
					}
					if n, _ := repo.MarkDone(context.Background(), done, false); n != len(rows) {
						b.Fatal(n)
					}
				}
			}
		})
	}
}
