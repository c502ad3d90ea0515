package cli

import (
	"maps"
	"slices"
	"strconv"
)

// checkedRelays is what `outbox relay --check` prints.
type checkedRelays struct {
	Outboxes []checkedOutbox `json:"outboxes"`
	Servers  []checkedServer `json:"servers"`
}

// checkedOutbox is an outbox that the relay would publish.
type checkedOutbox struct {
	Name        string `json:"name,omitempty"`
	Database    string `json:"database"`
	Schema      string `json:"schema,omitempty"`
	Prefix      string `json:"prefix,omitempty"`
	Broker      string `json:"broker"`
	Slot        string `json:"slot,omitempty"`
	Connections int    `json:"connections"` // to the database, at most
}

// checkedServer is a server of databases.
type checkedServer struct {
	Server      string `json:"server"`
	Connections int    `json:"connections"` // of the relays of all its databases, at most
}

// mostConnections is the largest number of connections of the outbox: its pool's, and on PostgreSQL
// one that listens or reads the log.
func (o *relayed) mostConnections() int {
	if o.db.pgx != nil && (o.slot != "" || !o.noWake) {
		return o.connections + 1
	}
	return o.connections
}

// printChecked prints the configuration that was found right.
func (a *app) printChecked(all []*relayed) error {
	var checked checkedRelays
	servers, counted := map[string]int{}, map[poolKey]int{}
	for _, o := range all {
		checked.Outboxes = append(checked.Outboxes, checkedOutbox{
			Name: o.name, Database: o.db.name, Schema: o.schema, Prefix: o.prefix, Broker: o.dest.name, Slot: o.slot,
			Connections: o.mostConnections(),
		})
		if o.db.server == "" {
			continue
		}
		most := o.mostConnections()
		if o.slot == "" { // outboxes on one database share its pool
			before := counted[o.poolKey()]
			most = max(0, most-before)
			counted[o.poolKey()] = before + most
		}
		servers[o.db.server] += most
	}
	checked.Servers = []checkedServer{}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		checked.Servers = append(checked.Servers, checkedServer{name, servers[name]})
	}
	return a.print(checked, func() {
		t := newTable("OUTBOX|DATABASE|SCHEMA|PREFIX|BROKER|SLOT|CONNECTIONS")
		for _, o := range checked.Outboxes {
			t.add(orDash(o.Name), o.Database, orDash(o.Schema), orDash(o.Prefix), o.Broker, orDash(o.Slot),
				strconv.Itoa(o.Connections))
		}
		t.write(a.Out)
		for _, s := range checked.Servers {
			a.sayf("%s: at most %s; compare it with max_connections\n", s.Server, many(s.Connections, "connection"))
		}
	})
}
