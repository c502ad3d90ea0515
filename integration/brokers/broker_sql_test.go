package brokers_test

import (
	"database/sql"
	"encoding/json"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// sqlBroker is watermill-sql on PostgreSQL: a topic is a table.
type sqlBroker struct {
	db   testdb.DB
	pool *sql.DB // reads the tables for the tests
}

func openSQL(t *testing.T) broker {
	t.Helper()
	return newSQLBroker(t, testdb.Postgres(t))
}

func newSQLBroker(t *testing.T, db testdb.DB) sqlBroker {
	t.Helper()
	return sqlBroker{db, db.Open(t)}
}

func startSQL(t *testing.T) (broker, suite.Server) {
	t.Helper()
	server, db := fixture.StartPrivateDatabase(t, "postgres")
	return newSQLBroker(t, db), server
}

// sqlSchema stores payloads as bytes. Watermill's default, a column of JSON, refuses other
// payloads.
func sqlSchema() wmsql.DefaultPostgreSQLSchema {
	return wmsql.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return "BYTEA" }}
}

// topic makes the table, so that held can read it before the first message. A publisher would make
// it too.
func (s sqlBroker) topic(t *testing.T) string {
	t.Helper()
	name := "it-" + core.NewEventID()
	queries, err := sqlSchema().SchemaInitializingQueries(wmsql.SchemaInitializingQueriesParams{Topic: name})
	fixture.NoError(t, err)
	for _, q := range queries {
		fixture.MustExec(t, s.pool, q.Query)
	}
	return name
}

func (s sqlBroker) publisher(t *testing.T, _ time.Duration) publisher {
	t.Helper()
	return s.publisherWith(t, sqlSchema())
}

func (s sqlBroker) publisherWith(t *testing.T, schema wmsql.SchemaAdapter) publisher {
	t.Helper()
	pool := s.db.Open(t)
	pool.SetMaxIdleConns(30)
	pub, err := wmsql.NewPublisher(wmsql.BeginnerFromStdSQL(pool), wmsql.PublisherConfig{
		SchemaAdapter: schema, AutoInitializeSchema: true,
	}, watermill.NopLogger{})
	fixture.NoError(t, err)
	p, err := watermillbridge.NewPublisher(pub, watermillbridge.Config{})
	fixture.NoError(t, err)
	topics.CloseAtEnd(t, p)
	return p
}

func (s sqlBroker) through(t *testing.T, timeout time.Duration) (publisher, suite.Link) {
	t.Helper()
	var proxy *suite.Proxy
	s.db.DSN, proxy = proxied(t, s.db.DSN)
	return s.publisher(t, timeout), proxy
}

// refusal is a payload that is no JSON, for a column of JSON.
func (s sqlBroker) refusal(t *testing.T) suite.Refusal {
	t.Helper()
	return suite.Refusal{
		Publisher: s.publisherWith(t, wmsql.DefaultPostgreSQLSchema{}), Topic: "it-" + core.NewEventID(),
		Payload: "not JSON",
	}
}

// held reads a topic in the order of Watermill's subscriber.
func (s sqlBroker) held(t *testing.T, topic string) []heldMessage {
	t.Helper()
	return fixture.Query(t, s.pool, `SELECT uuid, payload, metadata FROM `+sqlSchema().MessagesTable(topic)+
		` ORDER BY transaction_id, "offset"`, func(r *sql.Rows) (h heldMessage, err error) {
		var metadata []byte
		h.Message = message.NewMessage("", nil)
		if err := r.Scan(&h.UUID, (*[]byte)(&h.Payload), &metadata); err != nil {
			return h, err
		}
		return h, json.Unmarshal(metadata, &h.Metadata)
	})
}
