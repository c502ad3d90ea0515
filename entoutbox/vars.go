package entoutbox

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
)

// resetVars resets the variables of sql.WithVar. Ent does so after a statement outside of
// transactions, and not in one, so that the next user of the connection would have them.
func (t *tx) resetVars(ctx context.Context) error {
	format, ok := map[core.Dialect]string{core.Postgres: "RESET %s", core.MySQL: "SET %s = NULL"}[t.driver.dialect]
	var errs []error
	for _, name := range varsOf(ctx) {
		if ok {
			errs = append(errs, t.driver.send(context.Background(), t, fmt.Sprintf(format, name), []any{}, nil))
		}
	}
	return errors.Join(errs...)
}

// varsOf returns the names of the variables that a context carries.
func varsOf(ctx context.Context) (names []string) {
	vars := reflect.ValueOf(ctx.Value(varsKey))
	if vars.Kind() != reflect.Struct || vars.NumField() == 0 || vars.Field(0).Kind() != reflect.Slice {
		return nil
	}
	for i := range vars.Field(0).Len() {
		names = append(names, vars.Field(0).Index(i).Field(0).String())
	}
	return names
}

// varsKey is the key of the variables, which Ent does not export.
var varsKey = func() (key any) {
	entsql.VarFromContext(spyingContext{context.Background(), &key}, "")
	return key
}()

// spyingContext notes which key is asked for.
type spyingContext struct {
	context.Context //nolint:containedctx // it is a context
	key             *any
}

func (c spyingContext) Value(key any) any {
	*c.key = key
	return nil
}
