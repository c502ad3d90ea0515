module github.com/ormoutbox/ormoutbox/cmd/outbox

go 1.26.0

require (
	github.com/cheggaaa/pb/v3 v3.3.0
	github.com/go-sql-driver/mysql v1.10.1
	github.com/jackc/pgx/v5 v5.13.0
	github.com/nats-io/nats.go v1.55.0
	github.com/ormoutbox/ormoutbox v0.0.0
	github.com/ormoutbox/ormoutbox/outboxui v0.0.0-00010101000000-000000000000
	github.com/ormoutbox/ormoutbox/pgxoutbox v0.0.0
	github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay v0.0.0-00010101000000-000000000000
	github.com/ormoutbox/ormoutbox/promoutbox v0.0.0-00010101000000-000000000000
	github.com/ormoutbox/ormoutbox/watermillbridge v0.0.0
	github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge v0.0.0-00010101000000-000000000000
	github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge v0.0.0-00010101000000-000000000000
	github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge v0.0.0-00010101000000-000000000000
	github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge v0.0.0-00010101000000-000000000000
	github.com/prometheus/client_golang v1.25.0
	github.com/rabbitmq/amqp091-go v1.16.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/spf13/cobra v1.10.2
	github.com/spf13/pflag v1.1.0
	github.com/twmb/franz-go v1.22.3
	github.com/twmb/franz-go/pkg/kadm v1.20.0
	golang.org/x/term v0.48.0
	modernc.org/sqlite v1.62.0
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/ThreeDotsLabs/watermill v1.5.1 // indirect
	github.com/ThreeDotsLabs/watermill-amqp/v3 v3.0.2 // indirect
	github.com/VividCortex/ewma v1.2.0 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cenkalti/backoff/v3 v3.2.2 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/clipperhouse/uax29/v2 v2.2.0 // indirect
	github.com/dustin/go-humanize v1.1.0 // indirect
	github.com/fatih/color v1.19.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/hashicorp/errwrap v1.1.0 // indirect
	github.com/hashicorp/go-multierror v1.1.1 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/jackc/pgio v1.0.0 // indirect
	github.com/jackc/pglogrepl v0.0.0-20251213150135-2e8d0df862c1 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/lithammer/shortuuid/v3 v3.0.7 // indirect
	github.com/mattn/go-colorable v0.1.16 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/mattn/go-runewidth v0.0.31 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/nats-io/nkeys v0.4.16 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	github.com/ncruces/go-strftime v1.1.0 // indirect
	github.com/oklog/ulid v1.3.1 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/twmb/franz-go/pkg/kmsg v1.15.1 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/crypto v0.57.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	modernc.org/libc v1.80.1 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
)

replace github.com/ormoutbox/ormoutbox => ../../

replace github.com/ormoutbox/ormoutbox/pgxoutbox => ../../pgxoutbox

replace github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay => ../../pgxoutbox/walrelay

replace github.com/ormoutbox/ormoutbox/outboxui => ../../outboxui

replace github.com/ormoutbox/ormoutbox/promoutbox => ../../promoutbox

replace github.com/ormoutbox/ormoutbox/watermillbridge => ../../watermillbridge

replace github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge => ../../watermillbridge/amqpbridge

replace github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge => ../../watermillbridge/franzbridge

replace github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge => ../../watermillbridge/natsbridge

replace github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge => ../../watermillbridge/redisbridge
