package kafkabridge

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	return &producer{
		Bridge: "kafkabridge", Logger: logger,
		Dial: func() (message.Publisher, error) {
			pub, err := kafka.NewPublisher(config, adapter)
			if err != nil {
				return nil, fmt.Errorf("kafkabridge: connect: %w", explain(&config, err))
			}
			return pub, nil
		},
		HangUp: message.Publisher.Close,
	}
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
