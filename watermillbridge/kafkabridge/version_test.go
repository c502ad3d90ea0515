package kafkabridge

import (
	"errors"
	"runtime/debug"
	"strings"
	"testing"
)

func TestASaramaThatLosesIsRefused(t *testing.T) {
	t.Parallel()
	of := func(m *debug.Module) *debug.BuildInfo {
		return &debug.BuildInfo{Deps: []*debug.Module{
			{Path: "github.com/ThreeDotsLabs/watermill", Version: "v1.5.1"},
			m,
		}}
	}
	module := func(version string) *debug.Module { return &debug.Module{Path: saramaModule, Version: version} }
	replaced := func(by *debug.Module) *debug.Module {
		return &debug.Module{Path: saramaModule, Version: "v1.61.1", Replace: by}
	}
	for name, tc := range map[string]struct {
		info    *debug.BuildInfo
		refused string
	}{
		"the one that lost":  {of(module("v1.47.0")), "v1.47.0"},
		"long ago":           {of(module("v1.9.3")), "v1.9.3"},
		"commit after 1.46":  {of(module("v1.46.4-0.20260101000000-0123456789ab")), "v1.46.4"},
		"held back":          {of(replaced(module("v1.45.2"))), "v1.45.2"},
		"first good":         {of(module("v1.48.0")), ""},
		"newer":              {of(module("v1.61.1")), ""},
		"next major":         {of(module("v2.0.0")), ""},
		"commit before 1.48": {of(module("v1.48.0-0.20260401000000-0123456789ab")), ""},
		"untagged":           {of(module("v0.0.0-20260401000000-0123456789ab")), ""},
		"in a workspace":     {of(module("(devel)")), ""},
		"replaced by newer": {of(&debug.Module{
			Path: saramaModule, Version: "v1.47.0",
			Replace: module("v1.50.2"),
		}), ""},
		"replaced by a folder":    {of(replaced(&debug.Module{Path: "../sarama"})), ""},
		"replaced by a fork":      {of(replaced(&debug.Module{Path: "example.com/sarama", Version: "v1.1.0"})), ""},
		"not there":               {&debug.BuildInfo{}, ""},
		"an entry that is nil":    {of(nil), ""},
		"no build information":    {nil, ""},
		"no version":              {of(module("")), ""},
		"the module of old times": {of(&debug.Module{Path: "github.com/Shopify/sarama", Version: "v1.38.1"}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkSarama(tc.info)
			if tc.refused == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if !errors.Is(err, ErrSaramaLoses) || !strings.Contains(err.Error(), "it is "+tc.refused) ||
				!strings.Contains(err.Error(), "go get github.com/IBM/sarama@latest") {
				t.Errorf("err = %v, want ErrSaramaLoses that names %s and the remedy", err, tc.refused)
			}
		})
	}
}

// NewPublisher checks the program that it runs in.
func TestNewPublisherChecksTheBuild(t *testing.T) {
	old := readBuildInfo
	t.Cleanup(func() { readBuildInfo = old })
	readBuildInfo = func() (*debug.BuildInfo, bool) {
		return &debug.BuildInfo{Deps: []*debug.Module{{Path: saramaModule, Version: "v1.47.0"}}}, true
	}
	if _, err := NewPublisher(Config{Brokers: []string{"localhost:1"}}); !errors.Is(err, ErrSaramaLoses) {
		t.Errorf("err = %v, want ErrSaramaLoses", err)
	}
	readBuildInfo = func() (*debug.BuildInfo, bool) { return nil, false }
	p, err := NewPublisher(Config{Brokers: []string{"localhost:1"}})
	if err != nil {
		t.Fatalf("without build information: %v", err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
