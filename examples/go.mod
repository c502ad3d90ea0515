module github.com/ormoutbox/ormoutbox/examples

go 1.26.0

require (
	github.com/ThreeDotsLabs/watermill v1.5.1
	github.com/ormoutbox/ormoutbox v0.0.0
	github.com/ormoutbox/ormoutbox/gormoutbox v0.0.0
	github.com/ormoutbox/ormoutbox/watermillbridge v0.0.0
	gorm.io/driver/sqlite v1.6.0
	gorm.io/gorm v1.31.2
	modernc.org/sqlite v1.61.1
)

require (
	github.com/dustin/go-humanize v1.1.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jinzhu/inflection v1.0.0 // indirect
	github.com/jinzhu/now v1.1.5 // indirect
	github.com/lithammer/shortuuid/v3 v3.0.7 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/mattn/go-sqlite3 v1.14.22 // indirect
	github.com/ncruces/go-strftime v1.1.0 // indirect
	github.com/oklog/ulid v1.3.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/stretchr/testify v1.11.1 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.20.0 // indirect
	modernc.org/libc v1.79.0 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
)

replace github.com/ormoutbox/ormoutbox => ../

replace github.com/ormoutbox/ormoutbox/gormoutbox => ../gormoutbox

replace github.com/ormoutbox/ormoutbox/watermillbridge => ../watermillbridge

replace github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge => ../watermillbridge/kafkabridge

replace github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge => ../watermillbridge/amqpbridge
