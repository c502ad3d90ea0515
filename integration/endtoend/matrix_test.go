package endtoend_test

import (
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// GORM on each database publishes through Watermill to each broker, and the result is compared row
// by row. No event is lost, invented, doubled or changed, and the events of each key are in order.
func TestEndToEnd(t *testing.T) {
	t.Parallel()
	for dbName, open := range e2eDatabases {
		for brokerName, connect := range map[string]func() broker{
			"kafka":    func() broker { return kafkaBroker{testdb.Server(t, "OUTBOX_TEST_KAFKA")} },
			"rabbitmq": func() broker { return rabbitBroker{testdb.Server(t, "OUTBOX_TEST_RABBITMQ")} },
		} {
			t.Run(dbName+"/"+brokerName, func(t *testing.T) {
				t.Parallel()
				c := newE2ECell(t, open(t), connect())
				c.produce(8, 60, nil)
				c.finish(time.Minute)
				c.compare(0)
			})
		}
	}
}

var e2eDatabases = map[string]func(*testing.T) testdb.DB{"postgres": testdb.Postgres, "mariadb": testdb.MariaDB}
