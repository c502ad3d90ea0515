package core

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/ormoutbox/ormoutbox/core/internal/remoteerr"
)

// outages are the errors of the operating system and the standard library that do not concern the
// event: its destination cannot be reached, or this process lacks a resource that every publish
// needs.
var outages = []error{
	syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, syscall.ENOTCONN,
	syscall.EHOSTUNREACH, syscall.EHOSTDOWN, syscall.ENETUNREACH, syscall.ENETDOWN, syscall.ENETRESET,
	syscall.EADDRNOTAVAIL, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ENOSPC,
	net.ErrClosed, io.ErrUnexpectedEOF, io.EOF, io.ErrClosedPipe,
}

// DefaultClassifier recognises errors of the operating system, network errors of the standard
// library, and certificates that cannot be verified. It recognises other clients' errors by methods
// and texts: open circuit breakers, gRPC's Unavailable and ResourceExhausted, throttling by AWS,
// and a Redis that is loading or whose pool is exhausted. An error is ClassUnavailable if the
// destination cannot be reached. So is a lack of file descriptors, memory or disk space. A timeout
// is left to the relay, which has seen whether the destination acknowledged other events meanwhile.
// Every other error is ClassTransient.
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
	if isTLS(err) {
		return ClassUnavailable
	}
	if remoteerr.Unavailable(err) {
		return ClassUnavailable
	}
	return ClassTransient
}

// isTLS reports whether the destination shows a certificate that is not valid here, or speaks no TLS.
func isTLS(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	_, ok := errors.AsType[tls.RecordHeaderError](err)
	return ok
}
