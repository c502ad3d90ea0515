package monitoring

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// rule is an alert of alerts.yml.
type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// file returns the path of a file of docs/monitoring.
func file(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(fixture.Root(t), "docs", "monitoring", name)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	all, err := os.ReadFile(path)
	fixture.NoError(t, err)
	return all
}

// rules returns the alerts of alerts.yml.
func rules(t *testing.T) (all []rule) {
	t.Helper()
	var page struct {
		Groups []struct {
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	fixture.NoError(t, yaml.Unmarshal(read(t, file(t, "alerts.yml")), &page))
	for _, g := range page.Groups {
		all = append(all, g.Rules...)
	}
	fixture.Must(t, len(all) >= 10, "%d alerts were found", len(all))
	return all
}

// promtool returns the path of Prometheus's program. Without it the test fails.
func promtool(t *testing.T) string {
	t.Helper()
	for _, name := range []string{
		os.Getenv("OUTBOX_TEST_PROMTOOL"), "promtool", filepath.Join(fixture.Root(t), ".tools", "promtool"),
	} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("promtool is missing: run `make promtool`, or set OUTBOX_TEST_PROMTOOL to the path of yours")
	return ""
}

// Prometheus loads the rules.
func TestRulesAreValid(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(promtool(t), "check", "rules", "--lint-fatal", file(t, "alerts.yml")).CombinedOutput()
	fixture.Must(t, err == nil, "%v\n%s", err, out)
}

// Each alert fires in the situation that it is for, and is silent in the normal one beside it.
func TestAlerts(t *testing.T) {
	t.Parallel()
	tests, err := filepath.Glob(file(t, "*_test.yml"))
	fixture.Must(t, err == nil && len(tests) != 0, "tests of the alerts: %v, %v", tests, err)
	out, err := exec.Command(promtool(t), append([]string{"test", "rules"}, tests...)...).CombinedOutput()
	fixture.Must(t, err == nil, "%v\n%s", err, out)
}

// Each alert has a test with a time at which it fires. Beside it, job calm is a situation in which
// the alert does not fire.
func TestEveryAlertIsTested(t *testing.T) {
	t.Parallel()
	fires, calm := map[string]bool{}, map[string]bool{}
	tests, err := filepath.Glob(file(t, "*_test.yml"))
	fixture.NoError(t, err)
	for _, name := range tests {
		var page struct {
			Tests []struct {
				Series []struct {
					Series string `yaml:"series"`
				} `yaml:"input_series"`
				Alerts []struct {
					Alert string `yaml:"alertname"`
					Want  []struct {
						Labels map[string]string `yaml:"exp_labels"`
					} `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			} `yaml:"tests"`
		}
		fixture.NoError(t, yaml.Unmarshal(read(t, name), &page))
		for _, test := range page.Tests {
			for _, at := range test.Alerts {
				for _, a := range at.Want {
					fires[at.Alert] = true
					if a.Labels["job"] == "calm" {
						t.Errorf("%s is expected of job calm", at.Alert)
					}
				}
				for _, s := range test.Series {
					calm[at.Alert] = calm[at.Alert] || strings.Contains(s.Series, `job="calm"`)
				}
			}
		}
	}
	for _, r := range rules(t) {
		fixture.Check(t, fires[r.Alert], "no test has %s firing", r.Alert)
		fixture.Check(t, calm[r.Alert], "no test has %s silent for job calm", r.Alert)
	}
}

const pageURL = "https://github.com/ormoutbox/ormoutbox/blob/main/docs/monitoring.md#"

// Each alert says how bad it is, what it means and what to do. Its runbook is a paragraph of
// docs/monitoring.md, and each paragraph there has its alert.
func TestEveryAlertHasAParagraph(t *testing.T) {
	t.Parallel()
	page := string(read(t, filepath.Join(fixture.Root(t), "docs", "monitoring.md")))
	paragraphs := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### ([A-Z]\w+)\n\n(.+)`).FindAllStringSubmatch(page, -1) {
		paragraphs[m[1]] = true
	}
	fixture.Must(t, len(paragraphs) != 0, "docs/monitoring.md has no paragraphs of alerts")
	for _, r := range rules(t) {
		fixture.Check(t, paragraphs[r.Alert], "docs/monitoring.md has no paragraph ### %s", r.Alert)
		delete(paragraphs, r.Alert)
		if got, want := r.Annotations["runbook_url"], pageURL+strings.ToLower(r.Alert); got != want {
			t.Errorf("%s: runbook_url %s, want %s", r.Alert, got, want)
		}
		for _, name := range []string{"summary", "description"} {
			if r.Annotations[name] == "" {
				t.Errorf("%s has no %s", r.Alert, name)
			}
		}
		switch r.Labels["severity"] {
		case "critical", "warning", "info":
		default:
			t.Errorf("%s: severity %q", r.Alert, r.Labels["severity"])
		}
	}
	for name := range paragraphs {
		t.Errorf("docs/monitoring.md describes %s, which alerts.yml does not have", name)
	}
}
