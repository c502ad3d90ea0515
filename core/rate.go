package core

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	minRate     = 0.001 // events per second
	maxRate     = 1e6
	maxInFlight = 100_000
)

// RateStore is implemented by a Repository that stores rates of destinations. Run and Drain read
// them when they begin, and Run then every 2 s. If the table is missing, the errors wrap
// ErrNoTables.
type RateStore interface {
	// SetRate stores a rate in place of an earlier one of the same topic, or removes it if
	// PerSecond and InFlight are 0. It writes an audit row with the action AuditRate in the same
	// transaction.
	SetRate(ctx context.Context, req RateRequest) error
	// Rates returns up to 1000 rates, in ascending order of their topics.
	Rates(ctx context.Context) ([]Rate, error)
}

// AuditRate is the action of the audit rows that SetRate writes. The rows have the topic and no
// event.
const AuditRate = "rate"

// RateRequest says how much a destination gets. Set Topic, Actor and Reason. With PerSecond and
// InFlight 0 the destination has no limit any more.
type RateRequest struct {
	Topic string // at most 249 bytes
	// PerSecond is how many events a second the destination gets: 0.001 to 1,000,000. Zero: any
	// number.
	PerSecond float64
	// InFlight is how many events are on their way to the destination at the same time, at most
	// 100,000. Zero: any number.
	InFlight int
	Actor    string // the person; required, at most 255 bytes
	Reason   string // required, at most 1024 bytes
	// DryRun: the request is checked as ever, and nothing is changed. A RateStore gets no such
	// request.
	DryRun bool
}

// Rate is the limit of a destination.
type Rate struct {
	Topic     string
	PerSecond float64   // 0: any number
	InFlight  int       // 0: any number
	Since     time.Time // by the database's clock
	Actor     string
	Reason    string
}

// SetRate limits what a topic gets, from all relays of the table together, until it is called
// again. It is stored, so it holds over restarts. Publish goes on: the events wait in the table,
// keep the order of their keys and spend no attempts. Relays follow within 3 s, that of this Outbox
// at once.
//
// Each relay that takes the topic and is alive gets an equal share of both limits, by the
// heartbeats that Relays returns: nothing is asked of the database for a single event. So a relay
// that has less to do leaves a part of its share unused, and for some seconds after a relay has
// started or ended the topic gets more or less. A share of InFlight is at least 1, however many
// relays there are. If the Repository is no RelayRegistry, each relay has the limits for itself. At
// most a tenth of a second's events, or one event, are sent without a pause between them.
//
// A bad request, and a rate beside those of 1000 other topics, is refused with an error wrapping
// ErrInvalidRequest. The error wraps errors.ErrUnsupported if the Repository is no RateStore, and
// ErrNoTables if the table is missing.
func (o *Outbox) SetRate(ctx context.Context, req RateRequest) error {
	if err := checkRate(req); err != nil {
		return err
	}
	s, ok := o.cfg.Repository.(RateStore)
	if !ok {
		return errors.ErrUnsupported
	}
	set, err := s.Rates(ctx)
	if err != nil {
		return err
	}
	if ends := req.PerSecond == 0 && req.InFlight == 0; len(set) >= maxSettings && !ends &&
		!slices.ContainsFunc(set, func(r Rate) bool { return r.Topic == req.Topic }) {
		return fmt.Errorf("%w: %d destinations have a rate, and relays read no more: end some of them first",
			ErrInvalidRequest, len(set))
	}
	if req.DryRun {
		return nil
	}
	err = s.SetRate(ctx, req)
	o.lookNow()
	return err
}

// Rates returns the limits of destinations, as they are stored, in ascending order of the topics,
// at most 1000. The errors are those of SetRate.
func (o *Outbox) Rates(ctx context.Context) ([]Rate, error) {
	s, ok := o.cfg.Repository.(RateStore)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return s.Rates(ctx)
}

func checkRate(req RateRequest) error {
	if req.Topic == "" {
		return fmt.Errorf("%w: Topic is empty", ErrInvalidRequest)
	}
	if err := checkPause(ResumeRequest{Topic: req.Topic, Actor: req.Actor, Reason: req.Reason}); err != nil {
		return err
	}
	switch p := req.PerSecond; {
	case math.IsNaN(p) || p != 0 && (p < minRate || p > maxRate):
		return fmt.Errorf("%w: PerSecond %v is not 0, nor between %v and %v", ErrInvalidRequest, p, minRate, maxRate)
	case req.InFlight < 0 || req.InFlight > maxInFlight:
		return fmt.Errorf("%w: InFlight %d is not between 0 and %d", ErrInvalidRequest, req.InFlight, maxInFlight)
	}
	return nil
}

// share is the part of the limits that this process has.
func (r Rate) share(relays int) Rate {
	n := max(relays, 1)
	r.PerSecond /= float64(n)
	if r.InFlight > 0 {
		r.InFlight = max(r.InFlight/n, 1)
	}
	return r
}

// readRates asks the Repository for the limits of this process. One that stores none has none.
func (o *Outbox) readRates(ctx context.Context) (shares []Rate, err error) {
	callCtx, cancel := context.WithTimeout(ctx, dbTimeout)
	defer cancel()
	all, err := o.Rates(callCtx)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	if err != nil || len(all) == 0 {
		return nil, err
	}
	relays, err := o.Relays(callCtx)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, err
	}
	for _, rate := range all {
		n := 1 // this one, which may not be recorded yet
		for _, other := range relays {
			if other.Node != o.cfg.Node && other.Alive() && other.Relays(rate.Topic) {
				n++
			}
		}
		shares = append(shares, rate.share(n))
	}
	return shares, nil
}

func (o *Outbox) ratesUnknown(ctx context.Context, err error) {
	o.cfg.Logger.WarnContext(ctx, "outbox: cannot read the rates of destinations: this relay follows no new rate "+
		"until it can", "component", "outbox", "err", errorText(err))
}
