package redisonce

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/ormoutbox/ormoutbox/core/once"
)

// Acquire implements once.Store. The fence is the server's clock in microseconds, or the latest
// fence plus one if that is higher. So the fence also grows across evictions, restarts and
// failovers, unless the clock was set back meanwhile.
func (s *Store) Acquire(ctx context.Context, req once.Request) (once.Acquired, error) {
	if err := req.Validate(); err != nil {
		return once.Acquired{}, err
	}
	got, err := s.acquire(ctx, req)
	if err == nil {
		return got, nil
	}
	err = wrap("acquire", req.Key, err)
	if s.cfg.FailOpen != nil && ctx.Err() == nil && s.cfg.FailOpen(req.Key, err) {
		return once.Acquired{State: once.Fresh}, nil
	}
	return once.Acquired{}, err
}

func (s *Store) acquire(ctx context.Context, req once.Request) (once.Acquired, error) {
	refuseStale := 0
	if req.RefuseStale {
		refuseStale = 1
	}
	claim := func(r reply) once.Claim {
		fence, _ := strconv.ParseInt(r.text(1), 10, 64)
		return once.Claim{Key: req.Key, Owner: req.Owner, Fence: fence}
	}
	late := func(r reply) {
		if r.word() == "fresh" {
			s.giveBack(claim(r), int(r.number(2))-1)
		}
	}
	r, err := s.run(ctx, acquireScript, req.Key, true, late,
		req.Owner, req.Fingerprint.String(), micros(req.Lease), millis(req.TTL), micros(2*once.MaxLease),
		refuseStale)
	if errors.Is(err, ErrReplicas) {
		late(r)
	}
	if err != nil {
		return once.Acquired{}, err
	}
	switch r.word() {
	case "fresh":
		if c := claim(r); c.Fence > 0 {
			return once.Acquired{
				State: once.Fresh, Fence: c.Fence, Attempt: int(r.number(2)),
				TakenOver: r.number(3) == 1, Age: time.Duration(r.number(4)) * time.Microsecond,
			}, nil
		}
	case "in_progress":
		return once.Acquired{State: once.InProgress, RetryAfter: time.Duration(r.number(1)) * time.Microsecond}, nil
	case "done":
		res := once.Result{Data: []byte(r.text(1)), ContentType: r.text(2), Meta: r.text(3)}
		return once.Acquired{State: once.Done, Result: res}, nil
	case "mismatch":
		return once.Acquired{State: once.Mismatch}, nil
	case "abandoned":
		return once.Acquired{State: once.Abandoned}, nil
	}
	return once.Acquired{}, r.unknown()
}

// micros and millis turn durations into numbers for the scripts, and round up.
func micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

func millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
