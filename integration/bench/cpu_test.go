package main

import (
	"os"
	"os/exec"
	"testing"
)

// The CPU time of a child that has ended is the one that the system reports.
func TestFamilyCPU(t *testing.T) {
	before, ok := familyCPU(os.Getpid())
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		if ok {
			t.Error("a CPU time is known without /proc")
		}
		return
	}
	if !ok {
		t.Fatal("the CPU time of this process is not known")
	}
	child := exec.CommandContext(t.Context(), "sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	after, ok := familyCPU(os.Getpid())
	if !ok {
		t.Fatal("the CPU time of this process is not known any more")
	}
	used := child.ProcessState.UserTime() + child.ProcessState.SystemTime()
	if got := after - before; used == 0 || got < used-4*tick {
		t.Errorf("the family used %s, a child of it %s", got, used)
	}
}

func TestFindPostmasterRefusesOthers(t *testing.T) {
	for _, pid := range []int{os.Getpid(), 0, -1} {
		if got := findPostmaster(pid); got != 0 {
			t.Errorf("the postmaster of process %d is %d", pid, got)
		}
	}
}
