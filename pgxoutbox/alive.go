package pgxoutbox

import (
	"context"
	"crypto/tls"
)

// heard is what has come unasked on a connection.
type heard uint8

const (
	heardNothing heard = iota
	heardSomething
	heardEnd
)

// alive reports whether the connection can be used, as far as that is known without a round trip.
// An idle connection may have died, which an eager BEGIN would have shown. A server that ends a
// connection sends a message before it closes it. So a round trip is spent only if something has
// come.
func (s *session) alive(ctx context.Context) bool {
	c := s.pg.PgConn().Conn()
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	got := listen(c)
	if got == heardNothing && s.pg.PgConn().Frontend().ReadBufferLen() > 0 {
		got = heardSomething
	}
	switch got {
	case heardEnd:
		s.kill()
	case heardSomething: // a notice, or the last word of the server
		if err := s.pg.PgConn().Ping(ctx); err != nil && ctx.Err() == nil {
			s.kill()
		}
	case heardNothing:
	}
	return !s.closed()
}
