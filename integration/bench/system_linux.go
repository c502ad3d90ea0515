package main

import (
	"syscall"
	"time"
)

// selfCPU returns the CPU time of this process.
func selfCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// preciseSleep sleeps in the kernel. A timer of Go may be a millisecond late in an idle process,
// because its poller waits in whole milliseconds.
func preciseSleep(d time.Duration) {
	ts := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&ts, nil) // a signal ends it too early, which does no harm here
}
