package docs

// Only pages of the documentation use these packages.
import (
	_ "github.com/nats-io/nats.go/jetstream"
	_ "github.com/twmb/franz-go/pkg/kgo"
	_ "github.com/twmb/franz-go/pkg/sasl/plain"

	_ "github.com/ormoutbox/ormoutbox/contractoutbox"
)
