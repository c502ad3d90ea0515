package main

import (
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/perf/benchmath"
)

// median is benchstat's centre of a sample of unknown distribution, and NaN for an empty sample.
func median(all []float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(all, &benchmath.DefaultThresholds), 0.95).Center
}

// percentile returns the p-th percentile in microseconds with three significant figures, and NaN
// for an empty sample. Latencies over an hour count as an hour.
func percentile(all []time.Duration, p float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	h := hdrhistogram.New(1, time.Hour.Nanoseconds(), 3)
	for _, d := range all {
		_ = h.RecordValue(min(max(d, 1), time.Hour).Nanoseconds()) // in range, so it cannot fail
	}
	return float64(h.ValueAtPercentile(p)) / float64(time.Microsecond)
}

// interleave calls fn for each of n competitors in each round. Each round begins with another one.
func interleave(rounds, n int, fn func(round, i int) error) error {
	for round := range rounds {
		for turn := range n {
			if err := fn(round, (round+turn)%n); err != nil {
				return err
			}
		}
	}
	return nil
}
