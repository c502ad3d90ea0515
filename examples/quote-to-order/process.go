package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Environment of a service that the story starts.
const (
	childVariable = "END_WITH_PARENT" // it ends when its standard input does
	holdVariable  = "HOLD"            // it holds between the commit of a message and the commit of its offset
)

// Words that a service writes to its standard output.
const (
	sayListening = "listening" // and its address
	sayHeld      = "held"      // and the handler whose message is committed, while its offset is not
)

// hold says that it holds, and never returns.
func hold(handler string) {
	fmt.Println(sayHeld, handler)
	select {}
}

func endWithParent(stop func()) {
	io.Copy(io.Discard, os.Stdin)
	stop()
}

func openPool(dsn string) (*sql.DB, error) { return sql.Open("pgx", dsn) }

// process is a service, in a process of its own.
type process struct {
	name, url string
	cmd       *exec.Cmd
	stdin     io.Closer
	held      chan string // handlers that hold
	ended     chan error

	mu  sync.Mutex
	log bytes.Buffer
}

// start runs this program as a service, and waits until it listens. env are variables in addition
// to those of the story.
func (s *story) start(ctx context.Context, name string, env ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{name: name, held: make(chan string, 16), ended: make(chan error, 1)}
	p.cmd = exec.Command(self, name)
	p.cmd.Env = append(os.Environ(), "DATABASE_URL="+s.database, "KAFKA_BROKERS="+strings.Join(s.kafka.Brokers, ","),
		"TOPIC_PREFIX="+s.kafka.Prefix, "INSTANCE="+name+"-1", "OUTSIDE_URL="+s.outside.url, "ADDR=127.0.0.1:0",
		childVariable+"=yes")
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stderr = p
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	s.running = append(s.running, p)
	listening := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			word, rest, _ := strings.Cut(lines.Text(), " ")
			switch word {
			case sayListening:
				listening <- "http://" + rest
			case sayHeld:
				p.held <- rest
			}
		}
		p.ended <- p.cmd.Wait()
	}()
	select {
	case p.url = <-listening:
		return p, nil
	case err := <-p.ended:
		p.ended <- err
		return nil, fmt.Errorf("the service %s ended: %w\n%s", name, err, p.logged())
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// stop lets the service finish its work.
func (p *process) stop() error {
	p.stdin.Close()
	select {
	case err := <-p.ended:
		p.ended <- err
		if err != nil {
			return fmt.Errorf("the service %s ended: %w\n%s", p.name, err, p.logged())
		}
		return nil
	case <-time.After(time.Minute):
		return errors.Join(fmt.Errorf("the service %s does not end\n%s", p.name, p.logged()), p.cmd.Process.Kill())
	}
}

// kill ends the process with SIGKILL, and returns how it ended.
func (p *process) kill() (string, error) {
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return "", err
	}
	err := <-p.ended
	p.ended <- err
	return fmt.Sprint(err), nil
}

// Write keeps what the service logs.
func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(text)
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}
