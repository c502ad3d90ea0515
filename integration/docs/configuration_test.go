package docs

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

// The page of settings has each field of core.Config.
func TestConfigurationPageIsComplete(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(root + "/docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[core.Config]()) {
		if !strings.Contains(string(page), "`"+field.Name+"`") {
			t.Errorf("docs/configuration.md does not mention %s", field.Name)
		}
	}
}
