package inbox_test

import (
	"reflect"
	"testing"

	engine "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/inbox"
)

// Every setting of package core/inbox is a setting here too, under the same name.
func TestConfigHasEverySettingOfTheEngine(t *testing.T) {
	for here, there := range map[reflect.Type]reflect.Type{
		reflect.TypeFor[inbox.Config]():            reflect.TypeFor[engine.Config](),
		reflect.TypeFor[inbox.AtLeastOnceConfig](): reflect.TypeFor[engine.AtLeastOnceConfig](),
	} {
		for field := range there.Fields() {
			if _, ok := here.FieldByName(field.Name); !ok {
				t.Errorf("%s has no %s", here, field.Name)
			}
		}
	}
}
