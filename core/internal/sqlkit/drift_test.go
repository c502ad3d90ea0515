package sqlkit_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// node is a MySQL, or a node of a Galera cluster, that gets its table when it is asked to apply what
// other nodes have committed.
type node struct {
	galera, behind bool
	waited         error
}

func (n *node) Exec(context.Context, string, ...any) (int64, error) {
	return 0, errors.New("not a read")
}

func (n *node) Query(_ context.Context, text string, _ ...any) (core.Rows, error) {
	switch {
	case strings.HasPrefix(text, "SHOW SESSION VARIABLES LIKE 'wsrep_on'") && n.galera:
		return &values{rows: [][]any{{"wsrep_on", "ON"}}}, nil
	case strings.HasPrefix(text, "/*M! SET STATEMENT wsrep_sync_wait = 1 FOR */ SELECT"):
		n.behind = false
		return &values{rows: [][]any{{1}}}, n.waited
	case strings.Contains(text, "information_schema.columns") && !n.behind:
		return &values{rows: [][]any{{"id", "bigint", true}}}, nil
	case strings.Contains(text, "information_schema.tables"):
		return &values{rows: [][]any{{"InnoDB"}}}, nil
	}
	return &values{}, nil
}

type values struct {
	rows [][]any
	at   int
}

func (v *values) Next() bool { v.at++; return v.at <= len(v.rows) }

func (v *values) Scan(dest ...any) error {
	for i, d := range dest {
		reflect.ValueOf(d).Elem().Set(reflect.ValueOf(v.rows[v.at-1][i]))
	}
	return nil
}

func (v *values) Err() error   { return nil }
func (v *values) Close() error { return nil }

// A node of a Galera cluster may not have applied a migration yet.
func TestDriftWaitsForTheCluster(t *testing.T) {
	plan := sqlkit.Plan{Dialect: core.MySQL, Steps: []core.Migration{
		{Version: 1, Up: "CREATE TABLE IF NOT EXISTS a (\n    id BIGINT NOT NULL PRIMARY KEY\n);"},
	}}
	slow := errors.New("lock wait timeout")
	for _, c := range []struct {
		name  string
		node  node
		drift int
		err   error
	}{
		{name: "a node that has the table", node: node{galera: true}},
		{name: "a node that is behind", node: node{galera: true, behind: true}},
		{name: "a node that stays behind", node: node{galera: true, behind: true, waited: slow}, err: slow},
		{name: "a server without a cluster", node: node{behind: true}, drift: 1},
	} {
		drift, err := sqlkit.Drift(t.Context(), &c.node, plan, nil)
		if len(drift) != c.drift || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v", c.name, drift, err)
		}
		if c.err != nil && !strings.Contains(err.Error(), "has not applied everything") {
			t.Errorf("%s: the error does not say what was waited for: %v", c.name, err)
		}
	}
}
