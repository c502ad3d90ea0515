package crash

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// Process is a child that was started.
type Process struct {
	Name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	errs   output
	done   chan struct{}
	result error
}

type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// Start runs this test binary again as a child.
func Start(s Spec) (*Process, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{Name: s.Name, cmd: exec.Command(self), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	p.cmd.Stdout, p.cmd.Stderr = &p.errs, &p.errs
	if p.in, err = p.cmd.StdinPipe(); err != nil { // the child ends when its parent does, which closes this
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.result = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Quiet ends the child's writing; it goes on relaying.
func (p *Process) Quiet() error {
	_, err := io.WriteString(p.in, "quiet\n")
	return err
}

// Stop ends the child gracefully and returns its error.
func (p *Process) Stop() error {
	_ = p.in.Close()
	<-p.done
	if p.result != nil || p.raced() {
		return p.failure("ended badly")
	}
	return nil
}

// Signal sends a signal.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the child with kill -9 and waits for its end. It returns an error if the child had
// ended before or had failed.
func (p *Process) Kill() error {
	_ = p.Signal(syscall.SIGKILL)
	<-p.done
	return p.Killed()
}

// Killed returns an error unless the child, which has ended, died of kill -9.
func (p *Process) Killed() error {
	var exit *exec.ExitError
	if !errors.As(p.result, &exit) || p.raced() {
		return p.failure("was not killed")
	}
	if s, ok := exit.Sys().(syscall.WaitStatus); !ok || !s.Signaled() || s.Signal() != syscall.SIGKILL {
		return p.failure("was not killed")
	}
	return nil
}

func (p *Process) raced() bool { return strings.Contains(p.errs.String(), "DATA RACE") }

func (p *Process) failure(what string) error {
	return fmt.Errorf("%s %s: %v\n%s", p.Name, what, p.result, p.errs.String()) //nolint:errorlint // result may be nil
}
