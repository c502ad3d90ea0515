package sqlkit

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// CheckServer asks the server for its version. It returns an error that Refused recognises, and that
// wraps errors.ErrUnsupported, if the server is too old, or is another product that speaks the
// protocol of the dialect.
func CheckServer(ctx context.Context, q Querier, d core.Dialect) error {
	var version string
	if _, err := FirstRow(ctx, q, of(d).askVersion(), nil, &version); err != nil {
		return err
	}
	return judge(d, version)
}

// serverError says why a server is refused.
type serverError string

func (e serverError) Error() string { return string(e) }

// Refused reports whether an error says that a server is not supported.
func Refused(err error) bool {
	_, is := errors.AsType[serverError](err)
	return is
}

// Unwrap marks the error for callers that cannot wait for a better server.
func (serverError) Unwrap() error { return errors.ErrUnsupported }

// product is a kind of server and the oldest version that runs the statements.
type product struct {
	name   string
	oldest [3]int
}

var (
	ofPostgres = product{"PostgreSQL", [3]int{12}}
	ofMariaDB  = product{"MariaDB", [3]int{10, 6}}
	ofMySQL    = product{"MySQL", [3]int{8, 0, 16}}
	ofSQLite   = product{"SQLite", [3]int{3, 35}}
)

// strangers are servers that speak the protocol of PostgreSQL or MySQL, by a part of their answer to
// askVersion. They lack what the statements use, such as the address of a row (ctid) and advisory
// locks that lock.
var strangers = []struct {
	dialect    core.Dialect
	part, name string
}{
	{core.Postgres, "CockroachDB", "CockroachDB"},
	{core.Postgres, "-YB-", "YugabyteDB"},
	{core.MySQL, "TiDB", "TiDB"},
}

const choice = "keep the tables in PostgreSQL 12, MariaDB 10.6, MySQL 8.0.16, SQLite 3.35 or newer"

// judge returns an error about a server that is not supported. A version that it cannot read passes.
func judge(d core.Dialect, version string) error {
	for _, s := range strangers {
		if s.dialect == d && strings.Contains(version, s.part) {
			return serverError("the server is " + s.name + ", which is not supported: " + choice)
		}
	}
	p := productOf(d, version)
	is, ok := numbers(version)
	if !ok {
		return nil
	}
	for i, least := range p.oldest {
		switch {
		case is[i] > least:
			return nil
		case is[i] < least:
			return serverError(fmt.Sprintf("the server is %s %s, which is too old: %s", p.name, dotted(is), choice))
		}
	}
	return nil
}

func productOf(d core.Dialect, version string) product {
	switch {
	case d == core.Postgres:
		return ofPostgres
	case d == core.SQLite:
		return ofSQLite
	case isMariaDB(version):
		return ofMariaDB
	}
	return ofMySQL
}

var versionText = regexp.MustCompile(`^(?:PostgreSQL |5\.5\.5-)?(\d+)(?:\.(\d+))?(?:\.(\d+))?`)

// numbers reads the version at the beginning of a text. MariaDB may put 5.5.5- in front of its own.
func numbers(version string) (is [3]int, ok bool) {
	m := versionText.FindStringSubmatch(version)
	if m == nil {
		return is, false
	}
	for i := range is {
		is[i], _ = strconv.Atoi(m[i+1]) // "" is 0
	}
	return is, true
}

func dotted(is [3]int) string {
	return strings.TrimSuffix(fmt.Sprintf("%d.%d.%d", is[0], is[1], is[2]), ".0")
}

// OnGalera reports whether a server of the dialect MySQL is a node of a Galera cluster.
func OnGalera(ctx context.Context, q Querier) (bool, error) {
	var name, value string
	// MySQL has no such variable.
	_, err := FirstRow(ctx, q, "SHOW SESSION VARIABLES LIKE 'wsrep_on'", nil, &name, &value)
	return value == "ON", err
}
