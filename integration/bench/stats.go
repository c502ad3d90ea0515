package main

import (
	"math"
	"slices"
	"time"
)

// median returns NaN for nothing.
func median(all []float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	all = slices.Clone(all)
	slices.Sort(all)
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}

// percentile sorts all and returns its p-th percentile in microseconds, NaN for nothing.
func percentile(all []time.Duration, p float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	slices.Sort(all)
	i := max(0, int(math.Ceil(p/100*float64(len(all))))-1)
	return float64(all[i]) / float64(time.Microsecond)
}

// interleave calls fn for each of n competitors in each round; each round begins with another one.
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
