package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// usage is the resources that were used so far. A measurement is the difference of two of them.
type usage struct {
	wal  int64         // bytes of PostgreSQL's write-ahead log
	cpu  time.Duration // of this process and of the server; negative if the server's is not known
	self time.Duration // the part of this process
}

// usage reads the resources used so far. The server's CPU time is for all of its databases.
func (e *env) usage(ctx context.Context) (u usage, err error) {
	if u.wal, err = e.count(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"); err != nil {
		return u, err
	}
	u.cpu, u.self = -1, selfCPU()
	if server, ok := familyCPU(e.postmaster); ok {
		u.cpu = u.self + server
	}
	return u, nil
}

// since adds to f what was used since a moment, for each of n units. A table shows the columns that
// it has of them.
func (e *env) since(ctx context.Context, f figures, from usage, unit string, n float64) error {
	to, err := e.usage(ctx)
	if err != nil {
		return err
	}
	n = max(1, n)
	f["WAL B/"+unit] = float64(to.wal-from.wal) / n
	if from.cpu >= 0 && to.cpu >= 0 {
		f["CPU µs/"+unit] = float64((to.cpu - from.cpu).Microseconds()) / n
		f["own CPU µs/"+unit] = float64((to.self - from.self).Microseconds()) / n
		f["PostgreSQL CPU µs/"+unit] = float64((to.cpu - from.cpu - to.self + from.self).Microseconds()) / n
	}
	return nil
}

// findPostmaster returns the main process of a PostgreSQL server, given the process of one of its
// connections. It returns 0 for a server on another machine or in a container with other process
// numbers, and on a system without /proc.
func findPostmaster(backend int) int {
	b, err := readProcess(backend)
	if err != nil || b.name != "postgres" {
		return 0
	}
	if p, err := readProcess(b.parent); err != nil || p.name != "postgres" {
		return 0
	}
	if _, ok := familyCPU(b.parent); !ok {
		return 0
	}
	return b.parent
}

// process is a part of /proc/<pid>/stat.
type process struct {
	name   string
	parent int
	own    time.Duration // CPU time, of all threads
	ended  time.Duration // CPU time of the children that have ended
}

// tick is the unit of times in /proc/<pid>/stat.
const tick = 10 * time.Millisecond

func readProcess(pid int) (p process, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, err
	}
	_, rest, _ := strings.Cut(string(text), "(")
	i := strings.LastIndex(rest, ") ")
	if i < 0 {
		return p, fmt.Errorf("/proc/%d/stat has no name", pid)
	}
	p.name = rest[:i]
	f := strings.Fields(rest[i+2:])
	if len(f) < 15 {
		return p, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(f))
	}
	n := func(i int) int {
		v, _ := strconv.Atoi(f[i])
		return v
	}
	p.parent, p.own, p.ended = n(1), time.Duration(n(11)+n(12))*tick, time.Duration(n(13)+n(14))*tick
	return p, nil
}

// threadCPU reads the CPU time of a process with one thread to the nanosecond, if the kernel counts
// that.
func threadCPU(pid int, p process) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return p.own
	}
	first, _, _ := strings.Cut(string(b), " ")
	if n, err := strconv.ParseInt(first, 10, 64); err == nil && n > 0 {
		return time.Duration(n)
	}
	return p.own
}

// familyCPU returns the CPU time of a process and of its children, living and ended. It is for
// PostgreSQL, whose processes have one thread each. If a child ends meanwhile, it reads again.
func familyCPU(pid int) (time.Duration, bool) {
	if pid <= 0 {
		return 0, false
	}
	for range 20 {
		before, err := readProcess(pid)
		if err != nil {
			return 0, false
		}
		total := threadCPU(pid, before)
		all, err := filepath.Glob("/proc/[0-9]*/stat")
		if err != nil {
			return 0, false
		}
		for _, file := range all {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if p, err := readProcess(child); err == nil && p.parent == pid {
				total += threadCPU(child, p)
			}
		}
		if after, err := readProcess(pid); err == nil && after.ended == before.ended {
			return total + after.ended, true
		}
	}
	return 0, false
}
