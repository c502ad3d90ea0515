package docs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// examples has the programs of the examples. All are built at once when a test asks for the first.
var examples struct {
	build sync.Once
	dir   string
}

func TestMain(m *testing.M) {
	code := m.Run()
	if examples.dir != "" {
		os.RemoveAll(examples.dir)
	}
	os.Exit(code)
}

// example returns the program of a folder of the examples.
func example(t *testing.T, folder string) string {
	t.Helper()
	examples.build.Do(func() {
		dir, err := os.MkdirTemp("", "examples") //nolint:usetesting // it outlives the first test that asks for it
		fixture.NoError(t, err)
		examples.dir = dir
		buildExamples(t, dir, "./bun", "./ent", "./gorm", "./sql", "./inbox", "./mailer", "./quickstart",
			"./tutorial/2-order")
		buildExamples(t, filepath.Join(dir, "consumer"), "./consumer/...")
	})
	return filepath.Join(examples.dir, folder)
}

// buildExamples builds programs into a folder. They have no symbols, because linking those takes
// most of the time.
func buildExamples(t *testing.T, dir string, packages ...string) {
	t.Helper()
	goTool(t, filepath.Join(fixture.Root(t), "examples"),
		append([]string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", dir + "/"}, packages...)...)
}

// The order service of each library prints the same lines on PostgreSQL too. The tests of the
// services run them on SQLite.
func TestExamplesOnPostgreSQL(t *testing.T) {
	t.Parallel()
	const want = `placed order-1 for ada: 4200 cents
paid order-1
refused: card declined
consumer: order.placed order-1 {"order_id":"order-1","customer":"ada","cents":4200}
consumer: order.paid order-1 {"order_id":"order-1"}
2 events, none of the refused order
`
	for _, name := range []string{"bun", "ent", "gorm", "sql"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.Postgres(t)
			program := example(t, name)
			for range 2 { // the second run uses the tables that the first has left behind
				cmd := exec.CommandContext(t.Context(), program)
				cmd.Env = append(os.Environ(), "DATABASE_URL="+db.DSN)
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				out, err := cmd.Output()
				if err != nil || string(out) != want {
					t.Fatalf("%v: %s\nprinted:\n%s\nwant:\n%s", err, &stderr, out, want)
				}
			}
		})
	}
}

// The example consumers are whole programs, each on another library and another broker. One payment
// comes three times, and is credited once. Without the broker a program ends, and says what to
// start.
func TestExamplesOfConsumers(t *testing.T) {
	t.Parallel()
	const credited = "the payment was delivered 3 times, ada has 100 cents\n"
	inbox := ""
	for _, name := range []string{"sql", "gorm", "bun", "ent"} {
		inbox += name + ": ada has 4200, bob has 100, 2 events of credits, 1 parked, 3 in the poison queue\n"
	}
	for folder, tc := range map[string]struct {
		variable     string
		address      func(testing.TB) string
		nobody, hint string
		want         string
	}{
		"consumer/bun":  {"NATS_URL", topics.NATSURL, "nats://127.0.0.1:1", "start NATS", credited},
		"consumer/ent":  {"KAFKA_BROKERS", topics.KafkaAddress, "127.0.0.1:1", "start Kafka", credited},
		"consumer/gorm": {"AMQP_URL", topics.RabbitURI, "amqp://127.0.0.1:1", "start RabbitMQ", credited},
		"consumer/sql":  {"REDIS_URL", topics.RedisURL, "redis://127.0.0.1:1", "start Redis", credited},
		"inbox":         {"AMQP_URL", topics.RabbitURI, "amqp://127.0.0.1:1", "start RabbitMQ", inbox},
	} {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			program := example(t, folder)
			run := func(address string) (out, log string, err error) {
				cmd := exec.CommandContext(t.Context(), program)
				cmd.Env = append(os.Environ(), tc.variable+"="+address)
				var stdout, stderr bytes.Buffer
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				err = cmd.Run()
				return stdout.String(), stderr.String(), err
			}
			if out, log, err := run(tc.address(t)); err != nil || out != tc.want {
				t.Errorf("%v: %s\nprinted:\n%s\nwant:\n%s", err, log, out, tc.want)
			}
			if out, log, err := run(tc.nobody); err == nil || out != "" || !strings.Contains(log, tc.hint) ||
				!strings.Contains(log, tc.variable) {
				t.Errorf("without a broker: %v: %s\nprinted:\n%s", err, log, out)
			}
		})
	}
}
