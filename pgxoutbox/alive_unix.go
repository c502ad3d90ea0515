//go:build unix

package pgxoutbox

import (
	"errors"
	"net"
	"syscall"
)

// listen looks at what has come, and leaves it there. It does not wait.
func listen(c net.Conn) (got heard) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return heardNothing
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return heardNothing
	}
	// pgx may still be reading in the background. Read would wait for that.
	_ = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case n > 0:
			got = heardSomething
		case err == nil:
			got = heardEnd
		case !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR):
			got = heardEnd
		}
	})
	return got
}
