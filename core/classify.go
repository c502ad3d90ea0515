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

// DefaultClassifier knows the network errors of the standard library and the errors with which PostgreSQL, MySQL, MariaDB and SQLite say
// that they cannot be used at the moment: what says that the destination cannot be reached is ClassUnavailable. A deadline that ended is left to the relay, which knows whether the destination acknowledged anything
// meanwhile. Everything else is ClassTransient.
func DefaultClassifier(err error) Class {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.ECONNABORTED),
		errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH),
		errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, io.ErrClosedPipe):
		return ClassUnavailable
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
