package franzbridge

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// connections remembers why the last connection to a broker could not be opened. The client tries
// again, and in the end its error is only a timeout.
type connections struct {
	brokers string // from Config
	failure atomic.Pointer[error]
}

var _ kgo.HookBrokerConnect = (*connections)(nil)

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (c *connections) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err == nil {
		c.failure.Store(nil)
		return
	}
	if errors.Is(err, syscall.ECONNRESET) { // the client uses the text for other ends too
		err = fmt.Errorf("%w: the server closed the connection; it may want TLS", err)
	}
	c.failure.Store(&err)
}

// explain adds to an error of a message that nobody answered what it waited for.
func (c *connections) explain(err error) error {
	err = fmt.Errorf("%w: franzbridge: publish to %s: no answer yet", err, c.brokers)
	if failure := c.failure.Load(); failure != nil {
		return fmt.Errorf("%w: the last connection failed: %v", err, *failure) //nolint:errorlint // err has a class
	}
	return err
}
