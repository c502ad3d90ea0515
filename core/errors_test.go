package core_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"

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
		driver.ErrBadConn, sql.ErrConnDone, errors.New("invalid connection"),
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
