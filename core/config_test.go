package core_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

func TestConfigZeroValue(t *testing.T) {
	if err := (core.Config{Repository: outboxtest.NewRepository()}).Validate(); err != nil {
		t.Errorf("the defaults are not valid: %v", err)
	}
	err := core.Config{}.Validate()
	if err == nil || err.Error() != "outbox: config: Repository is missing" {
		t.Errorf("an empty Config: %v", err)
	}
	if ob, err := core.New(core.Config{}); ob != nil || err == nil {
		t.Errorf("New of an empty Config: %v, %v", ob, err)
	}
}

func TestConfigEachProblem(t *testing.T) {
	for want, change := range map[string]func(*core.Config){
		"MaxPayload is negative":        func(c *core.Config) { c.MaxPayload = -1 },
		"BacklogLimit.Rows is negative": func(c *core.Config) { c.BacklogLimit.Rows = -1 },
		"BacklogLimit.Age is negative":  func(c *core.Config) { c.BacklogLimit.Age = -1 },
		"DeadPolicy 2 is unknown":       func(c *core.Config) { c.DeadPolicy = 2 },
		"Node has 129 bytes":            func(c *core.Config) { c.Node = strings.Repeat("n", 129) },
		`Routes["t"] names no topic`:    func(c *core.Config) { c.Routes = map[string][]string{"t": nil} },
		`Routes["t"] names topic "a" twice`: func(c *core.Config) {
			c.Routes = map[string][]string{"t": {"a", "b", "a"}}
		},
		`Routes["t"]: topic is empty`: func(c *core.Config) { c.Routes = map[string][]string{"t": {""}} },
		`Routes["t"]: topic has 250 bytes`: func(c *core.Config) {
			c.Routes = map[string][]string{"t": {strings.Repeat("x", 250)}}
		},
		`Routes["t"]: topic has a control`: func(c *core.Config) { c.Routes = map[string][]string{"t": {"a\n"}} },
		"Publisher serves no topic":        func(c *core.Config) { c.Publisher = core.NewRouter() },
	} {
		c := core.Config{Repository: outboxtest.NewRepository()}
		change(&c)
		err := c.Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want that it says %q", err, want)
			continue
		}
		for line := range strings.SplitSeq(err.Error(), "\n") {
			if !strings.HasPrefix(line, "outbox: config: ") {
				t.Errorf("%q does not say where it comes from", line)
			}
		}
	}
}

func TestConfigReportsAllAtOnce(t *testing.T) {
	err := core.Config{
		Relay: relay.Config{Workers: -1, HotLease: time.Second}, DeadPolicy: 7,
		Routes: map[string][]string{"t": {}},
	}.Validate()
	for _, want := range []string{
		"Repository is missing", "Relay.Workers is negative", "Relay.HotLease 1s", "DeadPolicy 7",
		`Routes["t"]`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}
