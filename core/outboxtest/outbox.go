package outboxtest

import (
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// Outbox is a core.Outbox on a table in memory, for the tests of an application.
type Outbox struct {
	*core.Outbox
	// Repository is the table.
	Repository *Repository
	// Publisher gets the events of Drain and Run. It is not used if Config.Publisher is of another
	// type.
	Publisher *Publisher
	// Transactor opens transactions of Repository.
	Transactor core.Transactor
}

// NewOutbox returns an Outbox with the settings of cfg. It adds a Repository and a Publisher of
// this package, unless cfg has them. cfg.Repository may be a *Repository; Outbox.Repository is then
// that one. NewOutbox fails the test if cfg is not valid.
func NewOutbox(t testing.TB, cfg core.Config) *Outbox {
	t.Helper()
	repo, ok := cfg.Repository.(*Repository)
	switch {
	case cfg.Repository == nil:
		repo = NewRepository()
		cfg.Repository = repo
	case !ok:
		t.Fatalf("outboxtest: Config.Repository is a %T: leave it nil or give a *outboxtest.Repository", cfg.Repository)
	}
	pub := &Publisher{}
	if cfg.Publisher == nil {
		cfg.Publisher = pub
	} else if p, ok := cfg.Publisher.(*Publisher); ok {
		pub = p
	}
	if cfg.Relay == nil {
		cfg.Relay = relay.Config{}
	}
	ob, err := core.New(cfg)
	if err != nil {
		t.Fatalf("outboxtest: %v", err)
	}
	return &Outbox{Outbox: ob, Repository: repo, Publisher: pub, Transactor: repo.Transactor()}
}
