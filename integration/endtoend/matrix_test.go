package endtoend_test

import (
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/watermillbridge/httpbridge"
)

// GORM on each database publishes to each broker, and the result is compared row
// by row. No event is lost, invented, doubled or changed, and the events of each key are in order.
func TestEndToEnd(t *testing.T) {
	t.Parallel()
	for dbName, open := range e2eDatabases {
		for brokerName, connect := range map[string]func() broker{
			"kafka":    func() broker { return kafkaBroker{address: testdb.Server(t, "OUTBOX_TEST_KAFKA")} },
			"rabbitmq": func() broker { return rabbitBroker{testdb.Server(t, "OUTBOX_TEST_RABBITMQ")} },
			"nats":     func() broker { return natsBroker{testdb.Server(t, "OUTBOX_TEST_NATS")} },
			"redis":    func() broker { return redisBroker{testdb.Server(t, "OUTBOX_TEST_REDIS")} },
			"webhook":  func() broker { return webhookBroker{map[string]httpbridge.Endpoint{}} },
		} {
			if light := brokerName != "kafka" && brokerName != "rabbitmq"; light && dbName != "postgres" {
				continue // the database does not see to which broker its events go
			}
			t.Run(dbName+"/"+brokerName, func(t *testing.T) {
				t.Parallel()
				c := newE2ECell(t, open(t), connect())
				c.produce(8, 60, nil)
				c.finish(3 * time.Minute)
				c.compare(0)
			})
		}
	}
}

var e2eDatabases = map[string]func(*testing.T) testdb.DB{"postgres": testdb.Postgres, "mariadb": testdb.MariaDB}
