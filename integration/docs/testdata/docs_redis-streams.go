package page

import (
	"context"
	"crypto/tls"
	"crypto/x509"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"
)

var (
	ctx    context.Context
	client *redis.Client
	db     *gorm.DB
	router *message.Router
	logger watermill.LoggerAdapter

	options     *redis.Options
	authority   *x509.CertPool
	certificate tls.Certificate
)

func invoice(*message.Message) error
