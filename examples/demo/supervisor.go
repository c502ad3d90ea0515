package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// childLog is the file, in the directory of the demonstration, with what the children write to
// standard error.
const childLog = "child.log"

// counts has the steps that the children report. It chooses the moments of the kills and is shown
// on the screen. The result comes from the files.
type counts struct {
	committed, rolledBack, delivered, hot, cold int
	closed                                      int // lives that took the last order
}

func (c *counts) add(word string) {
	word, number, _ := strings.Cut(word, " ")
	switch word {
	case sayTaken: // adds the orders that a killed child could not report
		c.committed, _ = strconv.Atoi(number)
	case sayClosed:
		c.closed++
	case sayCommitted:
		c.committed++
	case sayRolledBack:
		c.rolledBack++
	case sayDelivered:
		c.delivered++
	case sayHot:
		c.hot++
	case sayCold:
		c.cold++
	}
}

// supervisor is the parent's part: it starts the shop, kills it in the middle of its work, and
// starts it again.
type supervisor struct {
	dir, exe string
	opts     options
	random   *rand.Rand
	out      *screen

	lives, kills int
	reported     counts
}

func newSupervisor(dir string, opts options, out *screen) (*supervisor, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &supervisor{dir: dir, exe: exe, opts: opts, out: out, random: rand.New(rand.NewPCG(opts.seed, 0))}, nil
}

// run returns when the shop has ended by itself: all orders are taken and its outbox has no open
// events.
func (s *supervisor) run(ctx context.Context) error {
	s.out.printf("%d orders, %d kills, seed %d: SQLite, GORM, a Go channel, one binary\n\n", s.opts.orders,
		s.opts.kills, s.opts.seed)
	if s.opts.tamper != tamperNothing {
		s.out.printf("  As asked for, a row will be removed: %s\n", s.opts.tamper)
	}
	for {
		s.lives++
		live := s.life
		if s.lives == 1 && s.opts.tamper == tamperOutbox {
			live = s.robbedLife
		}
		killed, err := live(ctx, s.due)
		if err != nil {
			return err
		}
		if !killed {
			break
		}
		s.kills++
	}
	return nil
}

// robbedLife is a life in which no event can be delivered, because the ledger is locked. After the
// kill it removes an event.
func (s *supervisor) robbedLife(ctx context.Context, _ func(before counts, at int) bool) (killed bool, err error) {
	unlock, err := lockLedger(ctx, s.dir)
	if err != nil {
		return false, err
	}
	killed, err = s.life(ctx, func(before counts, _ int) bool { return s.reported.committed > before.committed })
	if err := errors.Join(err, unlock()); err != nil {
		return killed, err
	}
	return killed, removeFromOutbox(ctx, s.dir)
}

// life runs the shop once, until it is due to be killed. killed is false when it ended by itself.
func (s *supervisor) life(ctx context.Context, due func(before counts, at int) bool) (killed bool, err error) {
	cmd := exec.CommandContext(ctx, s.exe, childCommand, s.dir, strconv.Itoa(s.opts.orders))
	log, err := os.OpenFile(filepath.Join(s.dir, childLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return false, err
	}
	defer log.Close()
	cmd.Stderr = log
	if _, err := cmd.StdinPipe(); err != nil { // held open: the child ends when it is closed, however this process ends
		return false, err
	}
	words, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}

	start, before, at, condemned := time.Now(), s.reported, s.killAt(), false
	for scan := bufio.NewScanner(words); scan.Scan(); {
		s.reported.add(scan.Text())
		if !condemned && due(before, at) {
			condemned = true
			// The kill does not come at the word itself, but at a random moment, between two
			// transactions or in one.
			timer := time.AfterFunc(time.Duration(s.random.Int64N(int64(5*time.Millisecond))),
				func() { cmd.Process.Kill() })
			defer timer.Stop()
		}
		s.out.life(s.lives, s.reported, s.opts.orders, "")
	}
	err = cmd.Wait()
	took := time.Since(start).Round(10 * time.Millisecond)
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err == nil:
		s.out.life(s.lives, s.reported, s.opts.orders, fmt.Sprintf("ended by itself after %s", took))
		return false, nil
	case condemned && cmd.ProcessState.ExitCode() != childFailed:
		s.out.life(s.lives, s.reported, s.opts.orders, fmt.Sprintf("killed -9 after %s", took))
		return true, nil
	}
	return false, fmt.Errorf("the shop failed: %w: %s", err, s.lastWords())
}

// killAt returns the number of deliveries, since the beginning, after which this life has to end: a
// random number within its share.
func (s *supervisor) killAt() int {
	if s.kills == s.opts.kills {
		return -1
	}
	return int(float64(s.opts.orders) * (float64(s.kills) + s.random.Float64()) / float64(s.opts.kills+1))
}

// due reports whether it is time to kill: this life has delivered an event, and has committed an
// order unless all orders were taken.
func (s *supervisor) due(before counts, at int) bool {
	now := s.reported
	return at >= 0 && now.delivered >= at && now.delivered > before.delivered &&
		(now.committed > before.committed || now.closed > before.closed)
}

// lastWords returns the end of the children's log.
func (s *supervisor) lastWords() string {
	log, err := os.ReadFile(filepath.Join(s.dir, childLog))
	if err != nil {
		return err.Error()
	}
	log = bytes.TrimSpace(log)
	return string(log[bytes.LastIndexByte(log, '\n')+1:])
}
