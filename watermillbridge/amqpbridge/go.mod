module github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge

go 1.26.0

require (
	github.com/ormoutbox/ormoutbox v0.0.0
	github.com/ormoutbox/ormoutbox/watermillbridge v0.0.0
)

require (
	github.com/ThreeDotsLabs/watermill v1.5.1 // indirect
	github.com/ThreeDotsLabs/watermill-amqp/v3 v3.0.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/lithammer/shortuuid/v3 v3.0.7 // indirect
	github.com/oklog/ulid v1.3.1 // indirect
	github.com/rabbitmq/amqp091-go v1.16.0 // indirect
)

replace github.com/ormoutbox/ormoutbox => ../../

replace github.com/ormoutbox/ormoutbox/watermillbridge => ../
