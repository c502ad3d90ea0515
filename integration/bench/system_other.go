//go:build !linux

package main

import "time"

// selfCPU returns 0: without /proc the CPU time of the server is not known either.
func selfCPU() time.Duration { return 0 }

func preciseSleep(d time.Duration) { time.Sleep(d) }
