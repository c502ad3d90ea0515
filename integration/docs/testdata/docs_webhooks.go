package page

import (
	"context"
	"crypto/tls"
	"crypto/x509"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/watermillbridge/httpbridge"
)

var (
	ctx        context.Context
	secret     string
	authority  *x509.CertPool
	client     tls.Certificate
	publisher  *httpbridge.Publisher
	in         *coreinbox.Inbox
	endpointOf func(subscriber string) httpbridge.Endpoint
	book       func(context.Context, core.Tx, coreinbox.Message) error
)
