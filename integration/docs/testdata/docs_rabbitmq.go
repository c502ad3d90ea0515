package page

import (
	"context"
	"crypto/tls"
	"crypto/x509"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"gorm.io/gorm"
)

var (
	ctx    context.Context
	db     *gorm.DB
	logger watermill.LoggerAdapter
	router *message.Router

	authority *x509.CertPool
	client    tls.Certificate
)

func book(msg *message.Message) error { return nil }
