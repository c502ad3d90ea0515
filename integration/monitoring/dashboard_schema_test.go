package monitoring

import (
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	schema "github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// The dashboard fits the schema of Grafana, and its queries fit the schema of queries of
// Prometheus. There is no field that Grafana does not know.
func TestDashboardFitsTheSchema(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	var d schema.Dashboard //nolint:staticcheck // the schema that Grafana 10 and 11 read, too
	// Both functions return a list as the error. An empty list is not nil.
	for _, err := range []error{d.UnmarshalJSONStrict(read(t, file(t, "dashboard.json"))), d.Validate()} {
		if err != nil && err.Error() != "" {
			t.Error(err)
		}
	}
	fixture.Check(t, len(d.Panels) == len(loadDashboard(t).Panels), "%d panels by the schema", len(d.Panels))
}
