module github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge

go 1.26.0

require (
	github.com/ThreeDotsLabs/watermill v1.5.1
	github.com/nats-io/nats.go v1.55.0
	github.com/ormoutbox/ormoutbox v0.0.0
	github.com/ormoutbox/ormoutbox/watermillbridge v0.0.0
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/klauspost/compress v1.20.0 // indirect
	github.com/lithammer/shortuuid/v3 v3.0.7 // indirect
	github.com/nats-io/nkeys v0.4.16 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	github.com/oklog/ulid v1.3.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	golang.org/x/crypto v0.57.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)

replace github.com/ormoutbox/ormoutbox => ../../

replace github.com/ormoutbox/ormoutbox/watermillbridge => ../
