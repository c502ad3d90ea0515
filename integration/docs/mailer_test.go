package docs

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
)

// In the example that sends mails, each customer gets one mail, however often the event comes.
// While the mail server refuses connections, the mail waits.
func TestExampleMailer(t *testing.T) {
	t.Parallel()
	dir, program := t.TempDir(), example(t, "mailer")
	topic, uri := topics.Rabbit(t), topics.RabbitURI(t)
	publisher := topics.RabbitPublisher(t, amqpbridge.Config{AMQP: amqpbridge.QueueConfig(uri), DeclareQueues: true})

	addr, mailServer := reservedPort(t)
	mailer := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), "AMQP_URL="+uri, "SMTP_ADDR="+addr, "TOPIC="+topic,
			"DATABASE="+filepath.Join(dir, "mailer.db"))
		cmd.Stderr = os.Stderr
		return cmd
	}
	serve := mailer("serve")
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	copies := core.Delivery{RowID: core.RowID{1}, Event: core.Event{
		ID: core.NewEventID(), Type: "customer.registered", Topic: topic, ContentType: "application/json",
		Payload: []byte(`{"Email":"bob@example.com"}`),
	}}
	for range 3 {
		if err := publisher.Publish(t.Context(), copies); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := mailer("register", "ada@example.com").Output(); err != nil ||
		string(out) != "registered ada@example.com\n" {
		t.Fatalf("%v: %s", err, out)
	}
	waitForEmptyQueue(t, uri, topic)

	mails := smtpServer(t, mailServer)
	got := map[string]int{}
	for range 2 {
		select {
		case to := <-mails:
			got[to]++
		case <-time.After(time.Minute):
			t.Fatalf("mails so far: %v", got)
		}
	}
	if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := serve.Wait(); err != nil {
		t.Error(err)
	}
	for len(mails) > 0 {
		got[<-mails]++
	}
	if got["ada@example.com"] != 1 || got["bob@example.com"] != 1 || len(got) != 2 {
		t.Errorf("mails: %v", got)
	}
}

func waitForEmptyQueue(t *testing.T, uri, name string) {
	t.Helper()
	conn, err := amqp091.Dial(uri)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if q.Messages == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%d messages were not consumed", q.Messages)
		}
	}
}

// reservedPort returns an address that refuses connections, and that no other process can take,
// until listen is called.
func reservedPort(t *testing.T) (addr string, listen func() (net.Listener, error)) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	socket := os.NewFile(uintptr(fd), "reserved")
	t.Cleanup(func() { socket.Close() })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	port := name.(*syscall.SockaddrInet4).Port
	return fmt.Sprintf("127.0.0.1:%d", port), func() (net.Listener, error) {
		if err := syscall.Listen(fd, 16); err != nil {
			return nil, err
		}
		return net.FileListener(socket)
	}
}

// smtpServer takes every mail and reports its recipient.
func smtpServer(t *testing.T, listen func() (net.Listener, error)) <-chan string {
	t.Helper()
	l, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	mails := make(chan string, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go takeMail(conn, mails)
		}
	}()
	return mails
}

func takeMail(conn net.Conn, mails chan<- string) {
	defer conn.Close()
	say := func(line string) { conn.Write([]byte(line + "\r\n")) } // the client sees an error
	say("220 test")
	to, data := "", false
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		switch line := lines.Text(); {
		case data && line == ".":
			data = false
			mails <- to
			say("250 taken")
		case data:
		case strings.HasPrefix(line, "RCPT TO:"):
			to = strings.Trim(strings.TrimPrefix(line, "RCPT TO:"), "<> ")
			say("250 ok")
		case line == "DATA":
			data = true
			say("354 go on")
		case line == "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}
