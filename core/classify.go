package core

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// outages are the errors of the operating system and the standard library that say nothing against
// an event: its destination cannot be reached, or this process lacks what it takes to reach
// anybody.
var outages = []error{
	syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, syscall.ENOTCONN,
	syscall.EHOSTUNREACH, syscall.EHOSTDOWN, syscall.ENETUNREACH, syscall.ENETDOWN, syscall.ENETRESET,
	syscall.EADDRNOTAVAIL, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ENOSPC,
	net.ErrClosed, io.ErrUnexpectedEOF, io.EOF, io.ErrClosedPipe,
}

// DefaultClassifier knows the errors of the operating system, the network errors of the standard
// library, and the errors with which PostgreSQL, MySQL, MariaDB and SQLite say that they cannot be
// used at the moment: what says that the destination cannot be reached is ClassUnavailable, and so
// is a want of file descriptors, memory or disk space. A deadline that ended is left to the relay,
// which knows whether the destination acknowledged anything meanwhile. Everything else is
// ClassTransient.
func DefaultClassifier(err error) Class {
	for _, outage := range outages {
		if errors.Is(err, outage) {
			return ClassUnavailable
		}
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return ClassUnavailable
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return ClassUnavailable
	}
	if sqlerr.Unavailable(err) {
		return ClassUnavailable
	}
	return ClassTransient
}

// isTimeout reports whether err says only that time ran out.
func isTimeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return true
	}
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}
