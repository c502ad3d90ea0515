package integration

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// privateServer is a server that belongs to one test, which may kill it without disturbing others.
type privateServer struct {
	name    string
	address string
	env     []string
	paused  bool
}

// startPrivate starts a server on ports and in a folder of its own. It is taken down when the test ends, or its process.
func startPrivate(t *testing.T, name string) *privateServer {
	t.Helper()
	return startPrivateSet(t, name)[0]
}

// startPrivateSet starts servers that need each other.
func startPrivateSet(t *testing.T, names ...string) []*privateServer {
	t.Helper()
	shared := os.Getenv("SERVICES_DIR")
	if shared == "" {
		shared = filepath.Join("..", ".services")
	}
	lib, err := filepath.Abs(filepath.Join(shared, "lib"))
	if err != nil {
		t.Fatal(err)
	}
	if set := os.Getenv("SERVICES_LIB"); set != "" {
		lib = set
	}
	var env []string
	for _, v := range os.Environ() { // a server that was given by name would be left alone, and its port taken
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "OUTBOX_TEST_") || strings.HasPrefix(name, "SERVICES_") && strings.HasSuffix(name, "_PORT") {
			continue
		}
		env = append(env, v)
	}
	env = append(env, "SERVICES_DIR="+t.TempDir(), "SERVICES_LIB="+lib, fmt.Sprintf("SERVICES_PORT_SHIFT=%d", freeShift(t)))
	var set []*privateServer
	for _, name := range names {
		set = append(set, &privateServer{name: name, env: env})
	}
	wipeAtTheEnd(t, env, names)
	for i, line := range strings.Split(strings.TrimSpace(services(t, env, "up", names...)), "\n") {
		set[i].reads(t, line)
	}
	return set
}

// wipeAtTheEnd leaves a shell behind that waits for the end of its input, and so cleans up even after a test that was killed. Servers are
// killed first: nobody needs their data, and the last of a cluster would wait for the others.
func wipeAtTheEnd(t *testing.T, env, names []string) {
	t.Helper()
	const script = `cat >/dev/null; for s; do ../scripts/services kill "$s" 2>/dev/null; done; exec ../scripts/services wipe "$@"`
	cmd := exec.Command("sh", append([]string{"-c", script, "sh"}, names...)...)
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("wipe %s: %v\n%s", names, err, stderr.Bytes())
		}
	})
}

// up starts it, or brings it back with its data, and returns when it answers.
func (s *privateServer) up(t *testing.T) {
	t.Helper()
	s.reads(t, s.run(t, "up"))
}

// reads takes the address from what scripts/services printed.
func (s *privateServer) reads(t *testing.T, line string) {
	t.Helper()
	name, address, ok := strings.Cut(strings.TrimSpace(line), "=")
	if !ok || !strings.EqualFold(name, "export OUTBOX_TEST_"+s.name) {
		t.Fatalf("scripts/services up %s printed %q", s.name, line)
	}
	s.address = strings.Trim(address, "'")
}

// kill ends it with SIGKILL.
func (s *privateServer) kill(t *testing.T) {
	t.Helper()
	s.run(t, "kill")
	s.paused = false
}

// pause makes it hang with its connections open, until resume or kill.
func (s *privateServer) pause(t *testing.T) {
	t.Helper()
	s.run(t, "pause")
	s.paused = true
}

// resume ends a pause, so that nobody waits for it while a test that failed cleans up.
func (s *privateServer) resume(t *testing.T) {
	t.Helper()
	if s.paused {
		s.run(t, "resume")
		s.paused = false
	}
}

func (s *privateServer) run(t *testing.T, command string) string {
	t.Helper()
	return services(t, s.env, command, s.name)
}

func services(t *testing.T, env []string, command string, names ...string) string {
	t.Helper()
	cmd := exec.Command("../scripts/services", append([]string{command}, names...)...)
	cmd.Env = env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("scripts/services %s %s: %v\n%s", command, names, err, stderr.Bytes())
	}
	return stdout.String()
}

// freeShift returns a number that can be added to the default ports of scripts/services: all of them are free then.
func freeShift(t *testing.T) int {
	t.Helper()
	for range 50 {
		shift := 1500 + rand.IntN(3500) // beside the first set and the one of CI, and below 32768
		free := true
		for _, port := range []int{27081, 27082, 27083, 27084, 27085, 27086, 27092, 27093, 27369, 27672, 27673} {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+shift))
			if err != nil {
				free = false
				break
			}
			_ = l.Close()
		}
		if free {
			return shift
		}
	}
	t.Fatal("no free ports")
	return 0
}
