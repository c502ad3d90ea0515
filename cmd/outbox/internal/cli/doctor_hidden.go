package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ormoutbox/ormoutbox/core"
)

// hiddenError: doctor lacks the right to see what a check asks for, so the check has no result.
type hiddenError struct {
	what  string // is hidden
	right string // that shows it
	grant string // how the right is given
}

func (e *hiddenError) Error() string { return e.what + ": needs " + e.right }

// guideOfRights has the rights of each role.
const guideOfRights = "docs/rights.md"

// hidden returns the missing right in an error of a check, or nil.
func (db *database) hidden(ctx context.Context, schema string, err error) *hiddenError {
	if e, ok := errors.AsType[*hiddenError](err); ok {
		return e
	}
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		return &hiddenError{
			what: "topics of Kafka", right: "DESCRIBE and DESCRIBE_CONFIGS on them",
			grant: "kafka-acls.sh --add --operation Describe --operation DescribeConfigs --topic '*' " +
				"--allow-principal User:NAME",
		}
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "42501" {
		what := e.Message
		if schema == "" {
			_ = db.QueryRowContext(ctx, "SELECT current_schema()").Scan(&schema)
		}
		schema, role := quoted(schema), db.role(ctx)
		return &hiddenError{what: what, right: "SELECT on the tables", grant: fmt.Sprintf(
			"GRANT USAGE ON SCHEMA %s TO %s; GRANT SELECT ON ALL TABLES IN SCHEMA %[1]s TO %[2]s", schema, role)}
	}
	e, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		return nil
	}
	switch e.Number {
	case 1044, 1142, 1143: // of a database, a table, a column
		if schema == "" {
			_ = db.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&schema)
		}
		return &hiddenError{what: e.Message, right: "SELECT on the tables", grant: fmt.Sprintf(
			"GRANT SELECT ON `%s`.* TO %s", schema, db.role(ctx))}
	case 1227: // of the server
		return &hiddenError{
			what: "transactions of all sessions", right: "PROCESS", grant: "GRANT PROCESS ON *.* TO " + db.role(ctx),
		}
	}
	return nil
}

// missingTable matches Check's error about a missing table.
var missingTable = regexp.MustCompile(`(?m)^table (\S+) is missing$`)

// hiddenTables distinguishes tables that the role may not see from missing ones, which err names.
func (x *examination) hiddenTables(ctx context.Context, err error) error {
	switch x.db.dialect {
	case core.Postgres:
		var seen bool
		asked := x.db.QueryRowContext(ctx, "SELECT current_schema() IS NOT NULL").Scan(&seen)
		if asked == nil && !seen && x.schema == "" {
			return &hiddenError{
				what: "the schemas of search_path", right: "USAGE on them",
				grant: "GRANT USAGE ON SCHEMA public TO " + x.db.role(ctx),
			}
		}
	case core.MySQL:
		for _, m := range missingTable.FindAllStringSubmatch(err.Error(), -1) {
			if _, err := x.db.hasTable(ctx, x.schema, m[1]); err != nil {
				return err
			}
		}
	case core.SQLite:
	}
	return nil
}

// role is the role of the connection, as GRANT takes it.
func (db *database) role(ctx context.Context) (role string) {
	query := "SELECT quote_ident(current_user)"
	if db.dialect == core.MySQL {
		query = "SELECT CURRENT_USER()"
	}
	if err := db.QueryRowContext(ctx, query).Scan(&role); err != nil {
		return "the role of doctor"
	}
	if at := strings.LastIndexByte(role, '@'); at >= 0 && db.dialect == core.MySQL {
		role = "'" + role[:at] + "'@'" + role[at+1:] + "'"
	}
	return role
}

// unchecked reports that the check failed with err.
func (x *examination) unchecked(ctx context.Context, err error) {
	found := "could not be checked: " + firstLine(err.Error())
	fix := "see whether the database is busy, and call doctor again"
	if x.check == "broker" {
		fix = "see whether the addresses are right and something answers there, as it does for the relay"
	}
	if e := x.db.hidden(ctx, x.schema, err); e != nil {
		found, fix = "not visible: "+e.Error(), e.grant+" ("+guideOfRights+")"
	}
	x.warn(found, "what this check would find is not known", fix)
}
