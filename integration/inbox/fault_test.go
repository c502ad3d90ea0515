package inbox_test

import (
	"github.com/ormoutbox/ormoutbox/integration/internal/commitfault"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

const (
	commitCarriedOut   = commitfault.Committed
	commitNeverArrived = commitfault.NotCommitted
)

func withCommitFaults(db testdb.DB) testdb.DB {
	var injector commitfault.Injector
	db.Wrap = injector.Connector
	return db
}
