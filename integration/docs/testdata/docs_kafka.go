package page

import (
	"context"
	"crypto/tls"
	"crypto/x509"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

var (
	ctx            context.Context
	brokers        []string
	user, password string
	authority      *x509.CertPool
	client         tls.Certificate
	db             *gorm.DB
	router         *message.Router
	publisher      *watermillbridge.Publisher
)

type scramClient struct{ sarama.SCRAMClient }

func invoice(*message.Message) error
