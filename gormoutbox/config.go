package gormoutbox

import "github.com/ormoutbox/ormoutbox/core/adapter"

// Config configures the outbox: every setting of core.Config but the Repository, and where the
// tables are (AutoCreate, Schema, Prefix), an outbox to be shared (Outbox), and what becomes of
// statements that do not say which rows they change (AllowKeyless, MaxResolvedRows). It is the same
// for every ORM. The zero value is usable: events are inserted into the existing tables, and
// another process relays them. Mistakes are reported by db.Use, New and Open.
type Config = adapter.Config
