package core_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core"
)

func TestClasses(t *testing.T) {
	reason := errors.New("reason")
	for want, mark := range map[core.Class]func(error) error{
		core.ClassPermanent: core.Permanent, core.ClassTransient: core.Transient,
		core.ClassUnavailable: core.Unavailable, core.ClassKeyUnavailable: core.UnavailableForKey,
		core.ClassUnroutable: core.Unroutable,
	} {
		if mark(nil) != nil {
			t.Errorf("%s: nil became an error", want)
		}
		err := mark(reason)
		if !errors.Is(err, reason) || err.Error() != "reason" {
			t.Errorf("%s: marked as %v", want, err)
		}
		if class, ok := core.ClassOf(fmt.Errorf("wrapped: %w", err)); !ok || class != want {
			t.Errorf("%s: found as %s, %t", want, class, ok)
		}
	}
	if class, ok := core.ClassOf(core.Permanent(core.Unavailable(reason))); !ok || class != core.ClassPermanent {
		t.Errorf("marked twice: %s, want what was said last", class)
	}
	for _, err := range []error{nil, reason} {
		if class, ok := core.ClassOf(err); ok || class != core.ClassTransient {
			t.Errorf("%v: %s, %t", err, class, ok)
		}
	}
}

func TestClassNames(t *testing.T) {
	for class, want := range map[core.Class]string{
		core.ClassTransient: "transient", core.ClassPermanent: "permanent", core.ClassUnavailable: "unavailable",
		core.ClassKeyUnavailable: "key_unavailable", core.ClassUnroutable: "unroutable", 9: "class(9)",
	} {
		equal(t, class.String(), want, "%q", class)
	}
}

func TestDefaultClassifier(t *testing.T) {
	_, refused := net.DialTimeout("tcp", "127.0.0.1:1", 0)
	for _, err := range []error{
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, syscall.EHOSTUNREACH,
		syscall.ENETUNREACH, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, &net.DNSError{},
		&net.OpError{Op: "dial", Err: errors.New("x")}, refused,
		&url.Error{Op: "Post", Err: &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}},
		syscall.EHOSTDOWN, syscall.ENETDOWN, syscall.ENETRESET, syscall.ENOTCONN, syscall.EADDRNOTAVAIL,
		syscall.ENOBUFS, syscall.ENOMEM, &os.PathError{Op: "open", Path: "/spool", Err: syscall.EMFILE},
		&os.PathError{Op: "write", Path: "/spool", Err: syscall.ENOSPC},
		fmt.Errorf("broker: %w", syscall.EPIPE), errors.Join(errors.New("x"), io.EOF),
		fmt.Errorf("dial: %w", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}),
		tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"},
	} {
		if got := core.DefaultClassifier(err); got != core.ClassUnavailable {
			t.Errorf("%v is %s", err, got)
		}
	}
	for _, err := range []error{
		errors.New("refused"), context.DeadlineExceeded, context.Canceled, os.ErrNotExist,
		syscall.ENOENT, os.ErrDeadlineExceeded,
	} {
		if got := core.DefaultClassifier(err); got != core.ClassTransient {
			t.Errorf("%v is %s", err, got)
		}
	}
}

func TestTxInContext(t *testing.T) {
	if _, ok := core.TxFromContext(t.Context()); ok {
		t.Error("a transaction in an empty context")
	}
	for o, want := range map[core.Outcome]string{
		core.Unknown: "unknown", core.Committed: "committed",
		core.RolledBack: "rolled_back", 7: "outcome(7)",
	} {
		equal(t, o.String(), want, "%q", o)
	}
}

func explodes(v any) { panic(v) }

func TestPanicError(t *testing.T) {
	caught := func(fn func()) (e *core.PanicError) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { e = core.NewPanicError(recover()) }()
			fn()
		}()
		<-done
		return e
	}
	for _, c := range []struct {
		value any
		text  string
	}{
		{"boom", "panic: boom"},
		{io.EOF, "panic: EOF"},
		{42, "panic: 42"},
		{"a\xff\x00b", "panic: a??b"},
		{"postgres://ada:secret@db/x", "panic: postgres://***@db/x"},
	} {
		e := caught(func() { explodes(c.value) })
		if e.Error() != c.text || e.Value != c.value || !strings.Contains(string(e.Stack), "core_test.explodes") {
			t.Errorf("got %q, value %v, stack:\n%s", e, e.Value, e.Stack)
		}
		if errors.Is(e, io.EOF) {
			t.Error("the value of a panic was taken for a returned error")
		}
	}
	// Go 1.27 says "runtime error: " before it.
	if e := caught(func() { explodes(nil) }); e.Value == nil ||
		!strings.HasPrefix(e.Error(), "panic: ") || !strings.Contains(e.Error(), "panic called with nil") {
		t.Errorf("panic(nil): %q", e)
	}
	long := caught(func() { explodes(strings.Repeat("ä", 1<<20)) }).Error()
	if len(long) > 2<<10 || !utf8.ValidString(long) || !strings.HasPrefix(long, "panic: ää") {
		t.Errorf("%d bytes, %.40q", len(long), long)
	}
	if e := caught(runtime.Goexit); e.Value != nil || !strings.Contains(e.Error(), "runtime.Goexit") ||
		strings.Contains(e.Error(), "panic") {
		t.Errorf("runtime.Goexit: %q, %v", e, e.Value)
	}
}
