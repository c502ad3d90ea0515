package bunoutbox

import "github.com/ormoutbox/ormoutbox/core/adapter"

// Config configures the outbox. It has every setting of core.Config except the Repository. Its
// other settings say where the tables are (AutoCreate, Schema, Prefix), and name an existing outbox
// to share (Outbox). Config is the same for every ORM. The zero value is usable: events are
// inserted into the existing tables, and another process relays them. New and Open report mistakes.
type Config = adapter.Config
