package sqloutbox

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/ormoutbox/ormoutbox/core"
)

// Texts returns every statement of a configuration by its name, for the golden files. A statement
// that is empty is an error.
func Texts(cfg Config, mariadb bool) (map[string]string, error) {
	n, err := cfg.names()
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	switch db := openDatabase(pool{}, n).(type) {
	case *postgres:
		for _, statements := range []any{
			db.postgresClaims.sql, db.postgresLeaving.sql, db.postgresMarks.sql, db.postgresAdmin.sql,
			db.postgresArchive.sql, db.postgresJanitor.sql,
		} {
			addFields(texts, reflect.ValueOf(statements))
		}
		texts["planner"] = postgresPlanner
		texts["insert one"] = db.insertOne.text(0)
		texts["insert one, hot and ordered"] = db.insertOne.text(shapeHot | shapeOrdered)
		all := (shapeOptional<<len(optionalColumns) - 1) &^ shapeByLog
		texts["insert one, everything"] = db.insertOne.text(all)
		texts["insert one, by the log"] = db.insertOne.text(shapeByLog)
		texts["insert 2 rows"] = db.insertText(2, 0, false)
		texts["insert 3 rows, 2 lanes"] = db.insertText(3, 2, false)
		texts["insert 3 rows, 2 lanes, by the log"] = db.insertText(3, 2, true)
	case *rowwise:
		addFields(texts, reflect.ValueOf(db.sql).Elem())
		statements := db.plain
		if mariadb {
			statements = db.guarded
		}
		texts["insert one"] = statements.event.text(0)
		texts["insert one, hot and ordered"] = statements.event.text(shapeHot | shapeOrdered)
		texts["insert one, everything"] = statements.event.text((shapeOptional<<len(optionalColumns) - 1) &^ shapeByLog)
		texts["insert one, by the log"] = statements.event.text(shapeByLog)
		texts["insert 2"] = statements.events.text(2)
		texts["insert 2, by the log"] = statements.logged.text(2)
		for i, name := range []string{"1", "2"} {
			texts["key "+name] = statements.keys.text(i + 1)
			if statements.keyRead != nil {
				texts["key_read "+name] = statements.keyRead.text(i + 1)
			}
		}
		texts["topic_rows of 2"] = db.sql.topicRows.text(2, 0)
		texts["topic_rows of 2 without 2 tenants"] = db.sql.topicRows.text(2, 2)
		texts["topic_due without 2 tenants"] = db.sql.topicDue.text(1, 2)
	default:
		return nil, fmt.Errorf("the statements of a %T are not known here", db)
	}
	for what, statements := range map[string]any{
		"admin": newAdminStatements(n), "audit": newAuditStatements(n), "relay": newRelayStatements(n),
		"pause": newPauseStatements(n),
		"rate":  newRateStatements(n), "type": newTypeStatements(n),
		"history": newHistoryStatements(n),
	} {
		of := map[string]string{}
		addFields(of, reflect.ValueOf(statements))
		for name, text := range of {
			texts[what+": "+name] = text
		}
	}
	texts["history: add 2"] = newHistoryStatements(n).add.text(2)
	for name, text := range texts {
		if len(text) < len("SELECT 1") {
			return nil, fmt.Errorf("statement %s is missing", name)
		}
	}
	return texts, nil
}

// addFields adds the statements that are fields of a struct, under the names of the fields.
func addFields(texts map[string]string, statements reflect.Value) {
	for i := range statements.NumField() {
		f, name := statements.Field(i), snake(statements.Type().Field(i).Name)
		switch f.Type() {
		case reflect.TypeFor[string](), reflect.TypeFor[union]():
			texts[name] = f.String()
		case reflect.TypeFor[tenantUnion]():
			texts[name] = f.FieldByName("all").String()
		case reflect.TypeFor[listed]():
			texts[name] = ""
			if after := f.FieldByName("after").String(); after != "" {
				texts[name] = f.FieldByName("before").String() + "{ids}" + after
			}
		}
	}
}

// snake writes undoFirst as undo_first.
func snake(field string) string {
	var b strings.Builder
	for _, r := range field {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// Planner is the statement before a claim.
const Planner = postgresPlanner

// TextArray writes a list for PostgreSQL. Clean makes a diagnostic text storable. SweepNext tells
// where a cleanup goes on behind young rows.
var (
	TextArray = textArray
	Clean     = clean
	SweepNext = sweepNext
)

// Core returns the settings for core.New.
func (c OpenConfig) Core(repo core.Repository) core.Config { return c.core(repo) }
