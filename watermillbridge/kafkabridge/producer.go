package kafkabridge

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/watermillbridge/internal/link"
)

// producer is a producer of Sarama that connects on the first use.
type producer = link.Link[message.Publisher]

func newProducer(config kafka.PublisherConfig, logger *slog.Logger) *producer {
	adapter := watermill.NewSlogLogger(logger)
	settings := *config.OverwriteSaramaConfig
	config.OverwriteSaramaConfig = &settings
	p := &producer{
		Bridge: "kafkabridge", Address: strings.Join(config.Brokers, ","), Logger: logger,
		Dial: func() (message.Publisher, error) {
			pub, err := kafka.NewPublisher(config, adapter)
			if err != nil {
				return nil, explain(&config, err)
			}
			return pub, nil
		},
		HangUp: message.Publisher.Close,
	}
	p.Wire.Dialer = (&net.Dialer{
		Timeout: settings.Net.DialTimeout, KeepAlive: settings.Net.KeepAlive, LocalAddr: settings.Net.LocalAddr,
	}).Dial
	if settings.Net.Proxy.Enable {
		p.Wire.Dialer = settings.Net.Proxy.Dialer.Dial
	}
	settings.Net.Proxy.Enable, settings.Net.Proxy.Dialer = true, &p.Wire
	return p
}

// explain adds the cause to an error of a connection. Sarama keeps most answers of a broker to
// itself, such as that it has no such mechanism of SASL. They come with a connection of our own.
func explain(config *kafka.PublisherConfig, err error) error {
	settings := config.OverwriteSaramaConfig
	if strings.HasSuffix(err.Error(), sarama.ErrOutOfBrokers.Error()) {
		for _, address := range config.Brokers {
			b := sarama.NewBroker(address)
			if b.Open(settings) != nil {
				continue
			}
			_, cause := b.Connected() // waits for it
			_ = b.Close()
			if cause != nil {
				err = fmt.Errorf("%w: %s: %w", err, address, cause)
				break
			}
		}
	}
	closed := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
	if closed && !settings.Net.TLS.Enable {
		return fmt.Errorf("%w: the server closed the connection; it may want TLS", err)
	}
	return err
}
