package docs

// Only pages of the documentation use these packages.
import (
	_ "entgo.io/contrib/entgql"
	_ "github.com/avito-tech/go-transaction-manager/trm/v2"
	_ "github.com/nats-io/nats.go/jetstream"
	_ "github.com/twmb/franz-go/pkg/kgo"
	_ "github.com/twmb/franz-go/pkg/sasl/plain"

	_ "github.com/ormoutbox/ormoutbox/contractoutbox"
)
