package docs

// Packages that only pages of the documentation use.
import (
	_ "github.com/nats-io/nats.go/jetstream"
	_ "github.com/twmb/franz-go/pkg/kgo"
)
