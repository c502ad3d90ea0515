package cli_test

import (
	"bytes"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// manifests are the objects of examples/deploy.
type manifests struct {
	migrate batchv1.Job
	config  corev1.ConfigMap
	relay   appsv1.Deployment
	budget  policyv1.PodDisruptionBudget
}

// readManifests reads the files strictly: a name that Kubernetes does not know is an error.
func readManifests(t *testing.T, files ...string) (m manifests) {
	t.Helper()
	into := map[string]any{
		"batch/v1 Job": &m.migrate, "v1 ConfigMap": &m.config, "apps/v1 Deployment": &m.relay,
		"policy/v1 PodDisruptionBudget": &m.budget,
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(fixture.Root(t), "examples", "deploy", file))
		fixture.NoError(t, err)
		for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
			var kind metav1.TypeMeta
			fixture.NoError(t, yaml.Unmarshal(document, &kind))
			name := kind.APIVersion + " " + kind.Kind
			fixture.Must(t, into[name] != nil, "%s has another %q", file, name)
			fixture.NoError(t, yaml.UnmarshalStrict(document, into[name]))
			delete(into, name)
		}
	}
	fixture.Must(t, len(into) == 0, "not in the files: %v", into)
	return m
}

// requireSelects fails unless the labels select the pods of the template.
func requireSelects(t *testing.T, by *metav1.LabelSelector, template corev1.PodTemplateSpec) {
	t.Helper()
	selector, err := metav1.LabelSelectorAsMap(by)
	fixture.NoError(t, err)
	for name, value := range selector {
		fixture.Check(
			t,
			template.Labels[name] == value,
			"the pods have %v, the selector is %v",
			template.Labels,
			selector,
		)
	}
	fixture.Check(t, len(selector) > 0, "the selector is empty")
}

// requireLocked fails unless the pod asks for no more than the program needs.
func requireLocked(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	fixture.Must(t, len(pod.Containers) == 1, "%d containers", len(pod.Containers))
	c := pod.Containers[0]
	fixture.Check(t, !*pod.AutomountServiceAccountToken && *pod.SecurityContext.RunAsNonRoot &&
		*pod.SecurityContext.RunAsUser > 0 && *c.SecurityContext.ReadOnlyRootFilesystem &&
		!*c.SecurityContext.AllowPrivilegeEscalation &&
		slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}), "%s may do too much", c.Name)
	fixture.Check(t, c.Resources.Requests.Memory().Value() > 0 && c.Resources.Requests.Cpu().MilliValue() > 0 &&
		c.Resources.Limits.Memory().Value() >= c.Resources.Requests.Memory().Value(), "resources of %s", c.Name)
}

// command is what the container of a pod runs, with its environment, its files in a folder of the
// test, and the secrets.
func (m manifests) command(t *testing.T, pod corev1.PodSpec, secrets map[string]string) (cmd *exec.Cmd, env []string) {
	t.Helper()
	c := pod.Containers[0]
	fixture.Must(t, len(c.Command) == 0, "the image has its own entry point")
	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil {
			ref := e.ValueFrom.SecretKeyRef
			found := false
			value, found = secrets[ref.Name+" "+ref.Key]
			fixture.Must(t, found, "no secret %s %s", ref.Name, ref.Key)
		}
		env = append(env, e.Name+"="+value)
	}
	args := slices.Clone(c.Args)
	for _, mount := range c.VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		fixture.Must(t, i >= 0 && pod.Volumes[i].ConfigMap.Name == m.config.Name, "%s mounts no ConfigMap", mount.Name)
		folder := t.TempDir()
		for name, text := range m.config.Data {
			fixture.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
		}
		for n, arg := range args {
			if file, ok := strings.CutPrefix(arg, mount.MountPath+"/"); ok {
				args[n] = filepath.Join(folder, file)
			}
		}
	}
	path, err := program()
	fixture.NoError(t, err)
	return exec.Command(path, args...), env
}

// shutdownTimeout is how long the relay takes to stop, as its help says.
func shutdownTimeout(t *testing.T) time.Duration {
	t.Helper()
	path, err := program()
	fixture.NoError(t, err)
	help, err := exec.Command(path, "relay", "--help").Output()
	fixture.NoError(t, err)
	m := regexp.MustCompile(`--shutdown-timeout duration[^(]*\(default (\w+)\)`).FindSubmatch(help)
	fixture.Must(t, m != nil, "no default of --shutdown-timeout in\n%s", help)
	d, err := time.ParseDuration(string(m[1]))
	fixture.NoError(t, err)
	return d
}

// runs runs a command to its end, and returns what it printed.
func runs(t *testing.T, cmd *exec.Cmd, env []string) (text string, code int) {
	t.Helper()
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// The manifests of Kubernetes are valid, and what they run works: a relay without tables ends, the
// Job makes the tables, the relay answers the probes, publishes, and stops in time.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	m := readManifests(t, "migrate.yaml", "relay.yaml")
	pod, job := m.relay.Spec.Template.Spec, m.migrate.Spec.Template.Spec
	requireSelects(t, m.relay.Spec.Selector, m.relay.Spec.Template)
	requireSelects(t, m.budget.Spec.Selector, m.relay.Spec.Template)
	requireSelects(t, pod.TopologySpreadConstraints[0].LabelSelector, m.relay.Spec.Template)
	requireLocked(t, pod)
	requireLocked(t, job)
	fixture.Check(t, job.RestartPolicy == corev1.RestartPolicyNever, "a Job with %q", job.RestartPolicy)
	c := pod.Containers[0]
	fixture.Check(t, c.Image == job.Containers[0].Image, "the Job has another version")
	fixture.Check(t, int(*m.relay.Spec.Replicas) > m.budget.Spec.MaxUnavailable.IntValue(), "a drain takes all relays")
	grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	fixture.Check(t, grace > shutdownTimeout(t), "%s are too short to stop", grace)

	db := testdb.Postgres(t)
	var in inbound
	to, topic := brokers["redis"](t, &in)
	secrets := map[string]string{
		"outbox-migrate database-url": db.DSN, "outbox-relay shop-url": db.DSN, "outbox-relay broker-url": to,
	}
	start := func() (*exec.Cmd, []string) { return m.command(t, pod, secrets) }
	check, env := start()
	check.Args = append(check.Args, "--check")
	out, code := runs(t, check, env)
	fixture.Check(t, code == 0 && strings.Contains(out, `"shop"`), "--check: exit code %d\n%s", code, out)
	fixture.Check(t, slices.Contains(env, "OUTBOX_LISTEN=:"+portOf(c, c.LivenessProbe)), "%v is not the port", env)

	cmd, env := start()
	relay := startCommand(t, cmd, env...)
	ready := c.ReadinessProbe.HTTPGet.Path
	fixture.Await(t, "the relay says that the tables are missing", func() bool {
		return relay.status(ready) == 503 && strings.Contains(relay.get(ready), "outbox migrate up")
	})
	for range 2 { // a Job may run twice
		migrate, env := m.command(t, job, secrets)
		out, code = runs(t, migrate, env)
		fixture.Must(t, code == 0, "the Job: exit code %d\n%s", code, out)
	}

	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		fixture.Check(t, portOf(c, probe) == portOf(c, c.LivenessProbe), "two ports")
		fixture.Await(t, probe.HTTPGet.Path+" answers", func() bool { return relay.status(probe.HTTPGet.Path) == 200 })
	}
	annotations := m.relay.Spec.Template.Annotations
	fixture.Check(t, relay.status(annotations["prometheus.io/path"]) == 200 &&
		annotations["prometheus.io/port"] == portOf(c, c.LivenessProbe), "no metrics at %v", annotations)
	want := serviceOf(t, db)(topic, 3)
	fixture.Await(t, "the events arrive", func() bool { return len(in.all()) >= len(want) })
	begin := time.Now()
	relay.terminate()
	fixture.Check(t, time.Since(begin) < grace, "it took %s to stop", time.Since(begin))
}

// portOf is the port of a probe, which it has by the port's name.
func portOf(c corev1.Container, probe *corev1.Probe) string {
	for _, p := range c.Ports {
		if p.Name == probe.HTTPGet.Port.String() {
			return strconv.Itoa(int(p.ContainerPort))
		}
	}
	return ""
}

// composeFile reads a file of Docker Compose as the program does, which knows every setting.
func composeFile(t *testing.T, path ...string) *types.Project {
	t.Helper()
	file := filepath.Join(append([]string{fixture.Root(t)}, path...)...)
	p, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: filepath.Dir(file), ConfigFiles: []types.ConfigFile{{Filename: file}},
		Environment: types.Mapping{"HOME": "/"},
	}, func(o *loader.Options) { o.Profiles = []string{"*"} })
	fixture.NoError(t, err)
	return p
}

// The files for Docker Compose are valid, and what examples/deploy runs is what the program takes:
// its addresses are those of the file's own servers.
func TestCompose(t *testing.T) {
	t.Parallel()
	composeFile(t, "compose.yaml")
	p := composeFile(t, "examples", "deploy", "compose.yaml")
	migrate, relay := p.Services["migrate"], p.Services["relay"]
	env := func(s types.ServiceConfig) (all []string) {
		for name, value := range s.Environment {
			all = append(all, name+"="+*value)
		}
		return all
	}
	for _, s := range []types.ServiceConfig{migrate, relay} {
		_, err := os.Stat(filepath.Join(s.Build.Context, s.Build.Dockerfile))
		fixture.NoError(t, err)
	}
	grace := time.Duration(*relay.StopGracePeriod)
	fixture.Check(t, grace > shutdownTimeout(t), "%s are too short to stop", grace)
	fixture.Check(t, migrate.DependsOn["db"].Condition == types.ServiceConditionHealthy &&
		relay.DependsOn["migrate"].Condition == types.ServiceConditionCompletedSuccessfully, "the order of starts")

	database, err := url.Parse(*relay.Environment["DATABASE_URL"])
	fixture.NoError(t, err)
	fixture.Check(t, *migrate.Environment["DATABASE_URL"] == database.String(), "two databases")
	db := p.Services[database.Host].Environment
	password, _ := database.User.Password()
	fixture.Check(t, *db["POSTGRES_USER"] == database.User.Username() && *db["POSTGRES_PASSWORD"] == password &&
		"/"+*db["POSTGRES_DB"] == database.Path, "%s is not %v", database, db)
	to, err := url.Parse(*relay.Environment["OUTBOX_TO"])
	fixture.NoError(t, err)
	broker := p.Services[to.Hostname()].Environment
	password, _ = to.User.Password()
	fixture.Check(t, *broker["RABBITMQ_DEFAULT_USER"] == to.User.Username() &&
		*broker["RABBITMQ_DEFAULT_PASS"] == password, "%s is not %v", to, broker)
	fixture.Check(t, *relay.Environment["OUTBOX_LISTEN"] == ":"+strconv.Itoa(int(relay.Ports[0].Target)), "the port")

	path, err := program()
	fixture.NoError(t, err)
	out, code := runs(t, exec.Command(path, append(relay.Command, "--check")...), env(relay))
	fixture.Check(t, code == 0 && strings.Contains(out, to.Host), "--check: exit code %d\n%s", code, out)
	fixture.Check(t, slices.Equal(migrate.Command, readManifests(t, "migrate.yaml", "relay.yaml").
		migrate.Spec.Template.Spec.Containers[0].Args), "the tables are made as on Kubernetes")
}
