package walrelay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/crash"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
)

const childVariable = "OUTBOX_WALRELAY_CHILD"

// TestMain lets a test start this binary again as a relay that ends itself with kill -9.
func TestMain(m *testing.M) {
	if text, is := os.LookupEnv(childVariable); is {
		var c child
		err := json.Unmarshal([]byte(text), &c)
		if err == nil {
			err = c.run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// point is where a child ends itself.
type point string

const (
	never           point = ""
	beforePublish   point = "read, before the publish"
	afterPublish    point = "published, before the answer"
	beforeConfirm   point = "answered, before the position is written down"
	afterConfirm    point = "the position is written down, before the server knows"
	beforeSpill     point = "before the commit of a spill"
	afterSpill      point = "after the commit of a spill"
	whileSpilled    point = "while keys are spilled"
	repairBegins    point = "a repair has begun"
	repairDropped   point = "a repair has dropped the slot"
	repairCreated   point = "a repair has made the slot"
	repairPublishes point = "a repair publishes"
	repairEnds      point = "a repair is written down as ended"
)

var points = []point{
	beforePublish, afterPublish, beforeConfirm, afterConfirm, beforeSpill, afterSpill, whileSpilled, repairBegins,
	repairDropped, repairCreated, repairPublishes, repairEnds,
}

// repairs reports whether the slot has to be lost for the point.
func (p point) repairs() bool { return strings.HasPrefix(string(p), "a repair") }

// spills reports whether events have to be refused for the point.
func (p point) spills() bool { return strings.Contains(string(p), "spill") }

// child is a process that relays, and ends itself when it passes its point for the After-th time.
type child struct {
	DSN, Slot, Ledger, Name string
	Point                   point
	After                   int64

	hits, spilled atomic.Int64
}

// at passes a point.
func (c *child) at(p point) {
	if c.Point == p && c.hits.Add(1) == c.After {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (c *child) run() error {
	cfg, err := pgxpool.ParseConfig(c.DSN)
	if err != nil {
		return err
	}
	cfg.ConnConfig.Tracer = &tracer{child: c}
	cfg.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return err
	}
	outbox := crash.Config(nil, &killer{Client: crash.NewClient(c.Ledger, c.Name), child: c}, c.Name)
	fixture.ChangeRelay(&outbox, func(c *relay.Config) { c.DisableJanitor = true })
	replication := cfg.ConnConfig.Copy()
	dial := replication.DialFunc
	replication.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &wire{Conn: conn, child: c}, err
	}
	relay, err := walrelay.New(walrelay.Config{
		Replication: replication, Pool: pool, Slot: c.Slot, Create: true, Outbox: outbox, Window: 100,
		ConfirmEvery:  20 * time.Millisecond,
		ConfirmEvents: 30, CheckpointEvery: 30 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return relay.Run(ctx)
}

// wire passes points around commands of the replication protocol.
type wire struct {
	net.Conn
	child *child
}

// Write implements net.Conn.
func (w *wire) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "CREATE_REPLICATION_SLOT") {
		w.child.at(repairDropped)
	}
	return w.Conn.Write(b)
}

// killer passes points around a publish.
type killer struct {
	*crash.Client
	*child
}

// Publish implements core.Publisher.
func (k *killer) Publish(ctx context.Context, d core.Delivery) error {
	k.at(beforePublish)
	k.at(repairPublishes)
	if k.spilled.Load() > 0 {
		k.at(whileSpilled)
	}
	err := k.Client.Publish(ctx, d)
	if err == nil {
		k.at(afterPublish)
	}
	return err
}

// tracer passes points around statements.
type tracer struct{ *child }

type textKey struct{}

// TraceQueryStart implements pgx.QueryTracer.
func (t *tracer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	text := d.SQL
	if strings.Contains(text, "SET spilled") {
		conn.PgConn().CustomData()["spill"] = true
	}
	if text == "commit" && conn.PgConn().CustomData()["spill"] != nil {
		delete(conn.PgConn().CustomData(), "spill")
		text = "commit of a spill"
		t.at(beforeSpill)
	}
	if strings.Contains(text, "SET confirmed = greatest") {
		t.at(beforeConfirm)
	}
	return context.WithValue(ctx, textKey{}, text)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (t *tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryEndData) {
	text, _ := ctx.Value(textKey{}).(string)
	if d.Err != nil {
		return
	}
	switch {
	case text == "commit of a spill":
		t.spilled.Add(1)
		t.at(afterSpill)
	case strings.Contains(text, "SET confirmed = greatest"):
		t.at(afterConfirm)
		t.at(repairEnds)
	case strings.Contains(text, "SET repairing = true"):
		t.at(repairBegins)
	case strings.Contains(text, "SET TRANSACTION SNAPSHOT"):
		t.at(repairCreated)
	}
}

// started is a child process.
type started struct {
	cmd  *exec.Cmd
	in   io.Closer
	out  strings.Builder
	done chan error
}

func (c *child) start() (*started, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &started{cmd: exec.Command(self), done: make(chan error, 1)}
	s.cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { s.done <- s.cmd.Wait() }()
	return s, nil
}

// killed waits until the child has ended itself.
func (s *started) killed(ctx context.Context) error {
	select {
	case <-s.done:
	case <-ctx.Done():
		_ = s.cmd.Process.Kill()
		<-s.done
		return fmt.Errorf("the child did not pass its point: %s", s.out.String())
	}
	if status, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		return fmt.Errorf("the child ended by itself: %s", s.out.String())
	}
	return nil
}

// stop ends the child in an orderly way.
func (s *started) stop() error {
	_ = s.in.Close()
	if err := <-s.done; err != nil {
		return errors.Join(err, errors.New(s.out.String()))
	}
	return nil
}

// refusals is a broker with failures, until it is healed. It always refuses one event in fifteen.
// It refuses one in ten for some tries. It loses one answer in fifty.
type refusals struct {
	healed atomic.Bool
	some   bool
}

func (r *refusals) judge(m crash.Message) crash.Answer {
	if !r.some || r.healed.Load() {
		return crash.Accept
	}
	sum := 0
	for _, b := range []byte(m.EventID) {
		sum += int(b)
	}
	switch {
	case sum%15 == 0:
		return crash.Permanent
	case sum%10 == 1 && rand.IntN(3) > 0:
		return crash.Transient
	case rand.IntN(50) == 0:
		return crash.LoseAnswer
	}
	return crash.Accept
}
