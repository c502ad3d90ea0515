module github.com/ormoutbox/ormoutbox/examples

go 1.26.0

require (
	entgo.io/ent v0.14.5
	github.com/ThreeDotsLabs/watermill v1.5.1
	github.com/ThreeDotsLabs/watermill-amqp/v3 v3.0.2
	github.com/ThreeDotsLabs/watermill-redisstream v1.4.5
	github.com/jackc/pgx/v5 v5.13.0
	github.com/nats-io/nats.go v1.55.0
	github.com/ormoutbox/ormoutbox v0.0.0
	github.com/ormoutbox/ormoutbox/bunoutbox v0.0.0
	github.com/ormoutbox/ormoutbox/contractoutbox v0.0.0
	github.com/ormoutbox/ormoutbox/entoutbox v0.0.0
	github.com/ormoutbox/ormoutbox/gormoutbox v0.0.0
	github.com/ormoutbox/ormoutbox/outboxui v0.0.0-00010101000000-000000000000
	github.com/ormoutbox/ormoutbox/pgxoutbox v0.0.0
	github.com/ormoutbox/ormoutbox/promoutbox v0.0.0
	github.com/ormoutbox/ormoutbox/watermillbridge v0.0.0
	github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge v0.0.0
	github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge v0.0.0
	github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/uptrace/bun v1.3.0
	github.com/uptrace/bun/dialect/pgdialect v1.3.0
	github.com/uptrace/bun/dialect/sqlitedialect v1.3.0
	golang.org/x/sync v0.25.0
	gorm.io/driver/postgres v1.6.3
	gorm.io/driver/sqlite v1.6.0
	gorm.io/gorm v1.31.2
	modernc.org/sqlite v1.62.0
)

require (
	ariga.io/atlas v0.32.1-0.20250325101103-175b25e1c1b9 // indirect
	github.com/Rican7/retry v0.3.1 // indirect
	github.com/agext/levenshtein v1.2.3 // indirect
	github.com/apparentlymart/go-textseg/v15 v15.0.0 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/bmatcuk/doublestar v1.3.4 // indirect
	github.com/cenkalti/backoff/v3 v3.2.2 // indirect
	github.com/cenkalti/backoff/v5 v5.0.3 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/dnwe/otelsarama v0.0.0-20240308230250-9388d9d40bc0 // indirect
	github.com/eapache/go-resiliency v1.7.0 // indirect
	github.com/go-logr/logr v1.4.2 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/go-openapi/inflect v0.19.0 // indirect
	github.com/golang/protobuf v1.5.4 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/google/jsonschema-go v0.4.3 // indirect
	github.com/hashicorp/errwrap v1.1.0 // indirect
	github.com/hashicorp/go-multierror v1.1.1 // indirect
	github.com/hashicorp/go-uuid v1.0.3 // indirect
	github.com/hashicorp/hcl/v2 v2.18.1 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/jcmturner/aescts/v2 v2.0.0 // indirect
	github.com/jcmturner/dnsutils/v2 v2.0.0 // indirect
	github.com/jcmturner/gofork v1.7.6 // indirect
	github.com/jcmturner/gokrb5/v8 v8.4.4 // indirect
	github.com/jcmturner/rpc/v2 v2.0.3 // indirect
	github.com/klauspost/compress v1.20.1 // indirect
	github.com/mitchellh/go-wordwrap v1.0.1 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/nats-io/nkeys v0.4.16 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	github.com/pierrec/lz4/v4 v4.1.31 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/puzpuzpuz/xsync/v3 v3.5.1 // indirect
	github.com/rcrowley/go-metrics v0.0.0-20250401214520-65e299d6c5c9 // indirect
	github.com/sony/gobreaker v1.0.0 // indirect
	github.com/tmthrgd/go-hex v0.0.0-20190904060850-447a3041c3bc // indirect
	github.com/vmihailenco/msgpack v4.0.4+incompatible // indirect
	github.com/vmihailenco/msgpack/v5 v5.4.1 // indirect
	github.com/vmihailenco/tagparser/v2 v2.0.0 // indirect
	github.com/zclconf/go-cty v1.14.4 // indirect
	github.com/zclconf/go-cty-yaml v1.1.0 // indirect
	go.opentelemetry.io/otel v1.29.0 // indirect
	go.opentelemetry.io/otel/metric v1.29.0 // indirect
	go.opentelemetry.io/otel/trace v1.29.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/crypto v0.57.0 // indirect
	golang.org/x/mod v0.42.0 // indirect
	golang.org/x/net v0.59.0 // indirect
	google.golang.org/appengine v1.6.8 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

require (
	github.com/IBM/sarama v1.61.1
	github.com/ThreeDotsLabs/watermill-kafka/v3 v3.0.6 // indirect
	github.com/dustin/go-humanize v1.1.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jinzhu/inflection v1.0.0 // indirect
	github.com/jinzhu/now v1.1.5 // indirect
	github.com/lithammer/shortuuid/v3 v3.0.7 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/mattn/go-sqlite3 v1.14.53 // indirect
	github.com/ncruces/go-strftime v1.1.0 // indirect
	github.com/oklog/ulid v1.3.1 // indirect
	github.com/ormoutbox/ormoutbox/inbox v0.0.0
	github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge v0.0.0
	github.com/pkg/errors v0.9.1 // indirect
	github.com/prometheus/client_golang v1.25.0
	github.com/rabbitmq/amqp091-go v1.16.0
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	modernc.org/libc v1.80.1 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
)

replace github.com/ormoutbox/ormoutbox => ../

replace github.com/ormoutbox/ormoutbox/gormoutbox => ../gormoutbox

replace github.com/ormoutbox/ormoutbox/watermillbridge => ../watermillbridge

replace github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge => ../watermillbridge/kafkabridge

replace github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge => ../watermillbridge/amqpbridge

replace github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge => ../watermillbridge/natsbridge

replace github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge => ../watermillbridge/redisbridge

replace github.com/ormoutbox/ormoutbox/entoutbox => ../entoutbox

replace github.com/ormoutbox/ormoutbox/bunoutbox => ../bunoutbox

replace github.com/ormoutbox/ormoutbox/inbox => ../inbox

replace github.com/ormoutbox/ormoutbox/inbox/redisonce => ../inbox/redisonce

replace github.com/ormoutbox/ormoutbox/outboxui => ../outboxui

replace github.com/ormoutbox/ormoutbox/pgxoutbox => ../pgxoutbox

replace github.com/ormoutbox/ormoutbox/promoutbox => ../promoutbox

replace github.com/ormoutbox/ormoutbox/contractoutbox => ../contractoutbox
