package monitoring

import (
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	schema "github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// The dashboard is one by the schema of Grafana, with no field that Grafana does not know, and the
// queries are queries of Prometheus by theirs.
func TestDashboardFitsTheSchema(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	var d schema.Dashboard //nolint:staticcheck // the schema that Grafana 10 and 11 read, too
	// Both return a list, which is an error that is not nil when it is empty.
	for _, err := range []error{d.UnmarshalJSONStrict(read(t, file(t, "dashboard.json"))), d.Validate()} {
		if err != nil && err.Error() != "" {
			t.Error(err)
		}
	}
	if len(d.Panels) != len(loadDashboard(t).Panels) {
		t.Errorf("%d panels by the schema", len(d.Panels))
	}
}
