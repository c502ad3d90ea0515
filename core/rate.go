package core

import (
	"math"
	"time"
)

const (
	minRate     = 0.001 // events per second
	maxRate     = 1e6
	maxInFlight = 100_000
)

// AuditRate is the action of the audit rows that SetRate writes. The rows have the topic and no
// event.
const AuditRate = "rate"

// RateRequest limits a destination. Set Topic, Actor and Reason. With PerSecond and InFlight 0 the
// limit is removed.
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
	DryRun   bool   // checks the request and changes nothing
}

// Rate is the limit of a destination.
type Rate struct {
	Topic     string    `json:"topic"`
	PerSecond float64   `json:"per_second"` // 0: any number
	InFlight  int       `json:"in_flight"`  // 0: any number
	Since     time.Time `json:"since"`      // by the database's clock
	Actor     string    `json:"actor"`
	Reason    string    `json:"reason"`
}

func checkRate(req RateRequest) error {
	if req.Topic == "" {
		return invalid("{Topic} is empty")
	}
	if err := checkPause(ResumeRequest{Topic: req.Topic, Actor: req.Actor, Reason: req.Reason}); err != nil {
		return err
	}
	switch p := req.PerSecond; {
	case math.IsNaN(p) || p != 0 && (p < minRate || p > maxRate):
		return invalid("{PerSecond} %v is not 0, nor between %v and %v", p, minRate, maxRate)
	case req.InFlight < 0 || req.InFlight > maxInFlight:
		return invalid("{InFlight} %d is not between 0 and %d", req.InFlight, maxInFlight)
	}
	return nil
}
