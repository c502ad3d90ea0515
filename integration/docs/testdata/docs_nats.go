package page

import (
	"context"
	"crypto/tls"
	"crypto/x509"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/nats-io/nats.go"
)

var (
	ctx    context.Context
	url    string
	conn   *nats.Conn
	logger watermill.LoggerAdapter

	user, password string
	authority      *x509.CertPool
	client         tls.Certificate
)
