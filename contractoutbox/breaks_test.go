package contractoutbox_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/contractoutbox"
	"github.com/ormoutbox/ormoutbox/core/contract"
)

// one is a catalog of one event.
func one[T any](change func(*contract.Spec[T]), example T) *contract.Catalog {
	s := contract.Spec[T]{
		Type: "order.placed", Owner: "o", Description: "d", Topic: "orders", AggregateType: "order", Example: example,
	}
	if change != nil {
		change(&s)
	}
	return contract.Must(contract.NewCatalog(contract.Must(contract.Define(s))))
}

// release writes the documents of a catalog and reads them as a release.
func release(t *testing.T, c *contract.Catalog) *contractoutbox.Baseline {
	t.Helper()
	t.Chdir(t.TempDir())
	const dir = "v1.0.0" // it is the name of the release
	must(t, newGenerator(t, c, contractoutbox.Config{}).Write(dir))
	r, err := contractoutbox.ReadBaseline(dir)
	must(t, err)
	return r
}

type (
	basic struct {
		ID    string `json:"id" contract:"aggregate"`
		Total int    `json:"total"`
	}
	withOptional struct {
		basic
		Note string `json:"note,omitempty"`
	}
	withRequired struct {
		basic
		Note string `json:"note"`
	}
	otherName struct {
		ID  string `json:"id" contract:"aggregate"`
		Sum int    `json:"sum"`
	}
	otherType struct {
		ID    string `json:"id" contract:"aggregate"`
		Total string `json:"total"`
	}
	otherKey struct {
		ID    string `json:"id"`
		Total int    `json:"total" contract:"key"`
	}
	keyRenamed struct {
		Order string `json:"order" contract:"aggregate"`
	}
)

var firstVersion = contract.From(1, keyRenamed{"o"}, func(k keyRenamed) (basic, error) {
	return basic{k.Order, 1}, nil
})

// code is a text of three characters. Reading another one is an error.
type code struct{ text string }

func (c code) MarshalText() ([]byte, error) { return []byte(c.text), nil }

func (c *code) UnmarshalText(text []byte) error {
	c.text = string(text)
	if len(text) != 3 {
		return errors.New("no code")
	}
	return nil
}

// Two types can both be strings in JSON, and one of them refuses texts that the other one reads.
func TestStringsThatReadersRefuse(t *testing.T) {
	const path = "order.placed/1/v"
	check := func(name, rule string, was, now *contract.Catalog, decode func() error) {
		t.Run(name, func(t *testing.T) {
			if decode() == nil {
				t.Fatal("the consumer of now reads what the release wrote")
			}
			breaks := newGenerator(t, now, contractoutbox.Config{
				Compatibility: contractoutbox.Backward,
			}).Breaks(release(t, was))
			if len(breaks) != 1 || breaks[0].ID() != path+rule {
				t.Errorf("%v", breaks)
			}
		})
	}
	type text struct {
		V string `json:"v"`
	}
	type quotedInt struct {
		V int `json:"v,string"`
	}
	type quotedBool struct {
		V bool `json:"v,string"`
	}
	type special struct {
		V code `json:"v"`
	}
	type byText struct {
		V map[string]int `json:"v"`
	}
	type byNumber struct {
		V map[int]int `json:"v"`
	}
	type byCode struct {
		V map[code]int `json:"v"`
	}
	isText, isMap := one(nil, text{"x"}), one(nil, byText{map[string]int{"x": 1}})
	check("a number in quotes", "/format", isText, one(nil, quotedInt{1}), reads[quotedInt](`{"v":"x"}`))
	check("a boolean in quotes", "/enum", one(nil, quotedInt{1}), one(nil, quotedBool{true}),
		reads[quotedBool](`{"v":"1"}`))
	check("a type that reads itself", "/format", isText, one(nil, special{code{"abc"}}), reads[special](`{"v":"x"}`))
	check("keys that are numbers", "/other", isMap, one(nil, byNumber{map[int]int{1: 1}}),
		reads[byNumber](`{"v":{"x":1}}`))
	check("keys that read themselves", "/other", isMap, one(nil, byCode{map[code]int{{"abc"}: 1}}),
		reads[byCode](`{"v":{"x":1}}`))
}

func reads[T any](payload string) func() error {
	return func() error { return json.Unmarshal([]byte(payload), new(T)) }
}

// Each change has its line: what changed, whom it breaks, what to do. A compatible one has none.
func TestBreaks(t *testing.T) {
	was := one(nil, basic{"o", 1})
	for name, tc := range map[string]struct {
		was, now          *contract.Catalog
		backward, forward []string // what each Compatibility reports; Full reports both
		fullLine          string   // the line of the first, under Full
	}{
		"nothing":      {was: was, now: one(nil, basic{"o", 1})},
		"new optional": {was: was, now: one(nil, withOptional{basic{"o", 1}, "n"})},
		"optional is gone": {
			was: one(nil, withOptional{basic{"o", 1}, "n"}), now: was,
		},
		"new required": {
			was: was, now: one(nil, withRequired{basic{"o", 1}, "n"}),
			backward: []string{"order.placed/1/note/required"},
			fullLine: "order.placed version 1, field note: was added, and is required: consumers of now refuse what " +
				"v1.0.0 wrote. Make it optional (omitempty), or declare version 2, with this one by From(1, ...). " +
				"[order.placed/1/note/required]",
		},
		"removed": {
			was: one(nil, withRequired{basic{"o", 1}, "n"}), now: was, forward: []string{"order.placed/1/note/removed"},
			fullLine: "order.placed version 1, field note: was removed: consumers of v1.0.0 refuse what producers " +
				"write now. Keep it as long as a consumer needs it, or declare version 2, with " +
				"this one by From(1, ...). [order.placed/1/note/removed]",
		},
		"renamed": {
			was: was, now: one(nil, otherName{"o", 1}), backward: []string{"order.placed/1/sum/required"},
			forward: []string{"order.placed/1/total/removed"},
			fullLine: `order.placed version 1, field sum: was added, and is required: consumers of now refuse ` +
				`what v1.0.0 wrote. If it was "total", write both for a while, the new one with omitempty`,
		},
		"type": {
			was: was, now: one(nil, otherType{"o", "1"}), backward: []string{"order.placed/1/total/type"},
			forward: []string{"order.placed/1/total/type"},
			fullLine: `order.placed version 1, field total: type changed from "integer" to "string": consumers ` +
				`of now refuse what v1.0.0 wrote, and consumers of v1.0.0 refuse what producers write now. ` +
				`Declare version 2, with this one by From(1, ...). [order.placed/1/total/type]`,
		},
		"type in a new version": {
			was: was, now: one(func(s *contract.Spec[otherType]) {
				s.Older = []contract.Older{contract.From(1, basic{"o", 1}, func(b basic) (otherType, error) {
					return otherType{b.ID, fmt.Sprint(b.Total)}, nil
				})}
			}, otherType{"o", "1"}),
		},
		"key renamed in a new version": {
			was: was, now: one(func(s *contract.Spec[keyRenamed]) {
				s.Older = []contract.Older{contract.From(1, basic{"o", 1}, func(b basic) (keyRenamed, error) {
					return keyRenamed{b.ID}, nil
				})}
			}, keyRenamed{"o"}),
		},
		"an older version changes": {
			was: one(func(s *contract.Spec[otherType]) {
				s.Older = []contract.Older{contract.From(1, basic{"o", 1}, func(basic) (otherType, error) {
					return otherType{}, nil
				})}
			}, otherType{"o", "1"}),
			now: one(func(s *contract.Spec[otherType]) {
				s.Older = []contract.Older{contract.From(1, otherName{"o", 1}, func(otherName) (otherType, error) {
					return otherType{}, nil
				})}
			}, otherType{"o", "1"}),
			backward: []string{"order.placed/1/sum/required"}, forward: []string{"order.placed/1/total/removed"},
			fullLine: "or leave an older version as it was.",
		},
		"a version without From": {
			was: was, now: one(func(s *contract.Spec[otherType]) { s.Version = 2 }, otherType{"o", "1"}),
			backward: []string{"order.placed/1//version"}, forward: []string{"order.placed/1//version"},
			fullLine: "order.placed version 1: the version is gone: consumers of now refuse what v1.0.0 wrote. " +
				"Declare it by From(1, ...) in Spec.Older. [order.placed/1//version]",
		},
		"a lower version": {
			was:      one(func(s *contract.Spec[basic]) { s.Version = 4 }, basic{"o", 1}),
			now:      one(func(s *contract.Spec[basic]) { s.Version = 3 }, basic{"o", 1}),
			backward: []string{"order.placed/4//version"}, forward: []string{"order.placed/4//version"},
			fullLine: "Versions only grow: declare at least this one.",
		},
		"a new event": {
			was: was, now: contract.Must(contract.NewCatalog(
				contract.Must(contract.Define(cancelled())), contract.Must(contract.Define(contract.Spec[basic]{
					Type: "order.placed", Owner: "x", Description: "y", Topic: "orders", AggregateType: "order",
					Domain:  "z",
					Example: basic{"other", 2},
				})),
			)),
		},
		"an event is gone": {
			was: was, now: contract.Must(contract.NewCatalog(contract.Must(contract.Define(cancelled())))),
			backward: []string{"order.placed/0//event"}, forward: []string{"order.placed/0//event"},
			fullLine: "order.placed: the event is gone: consumers of v1.0.0 get it no more. Set Spec.Deprecated, " +
				"release, and remove it when no consumer is left. [order.placed/0//event]",
		},
		"a deprecated event is gone": {was: contract.Must(contract.NewCatalog(
			contract.Must(contract.Define(cancelled())), contract.Must(contract.Define(placed())),
		)), now: contract.Must(contract.NewCatalog(contract.Must(contract.Define(placed()))))},
		"topic": {
			was: was, now: one(func(s *contract.Spec[basic]) { s.Topic = "" }, basic{"o", 1}),
			backward: []string{"order.placed/0//topic"}, forward: []string{"order.placed/0//topic"},
			fullLine: `order.placed: the topic changed from "orders" to "order" by default: consumers of v1.0.0 read ` +
				`the other`,
		},
		"key": {
			was: was, now: one(nil, otherKey{"o", 1}),
			backward: []string{"order.placed/0//order"}, forward: []string{"order.placed/0//order"},
			fullLine: "order.placed: the key changed from order/id to field total: events before and after the " +
				"deployment have no common order.",
		},
		"key of a later version": {
			was: one(func(s *contract.Spec[basic]) { s.Older = []contract.Older{firstVersion} }, basic{"o", 1}),
			now: one(func(s *contract.Spec[otherKey]) {
				s.Older = []contract.Older{contract.From(1, keyRenamed{"o"}, func(k keyRenamed) (otherKey, error) {
					return otherKey{k.Order, 1}, nil
				})}
			}, otherKey{"o", 1}),
			backward: []string{"order.placed/0//order"}, forward: []string{"order.placed/0//order"},
			fullLine: "the key changed from order/id to field total",
		},
		"aggregate type without a topic": {
			was:      one(func(s *contract.Spec[basic]) { s.Topic = "" }, basic{"o", 1}),
			now:      one(func(s *contract.Spec[basic]) { s.Topic, s.AggregateType = "", "orders" }, basic{"o", 1}),
			backward: []string{"order.placed/0//order", "order.placed/0//topic"},
			forward:  []string{"order.placed/0//order", "order.placed/0//topic"},
			fullLine: `the topic changed from "order" by default to "orders" by default`,
		},
		"aggregate type": {
			was: was, now: one(func(s *contract.Spec[basic]) { s.AggregateType = "orders" }, basic{"o", 1}),
			backward: []string{"order.placed/0//order"}, forward: []string{"order.placed/0//order"},
			fullLine: "the key changed from order/id to orders/id",
		},
	} {
		r := release(t, tc.was)
		both := slices.Concat(tc.backward, tc.forward)
		slices.Sort(both)
		both = slices.Compact(both)
		for mode, want := range map[contractoutbox.Compatibility][]string{
			contractoutbox.Backward: tc.backward, contractoutbox.Forward: tc.forward, contractoutbox.Full: both,
		} {
			g := newGenerator(t, tc.now, contractoutbox.Config{Compatibility: mode})
			var got []string
			for _, b := range g.Breaks(r) {
				got = append(got, b.ID())
				if strings.Contains(b.String(), "\n") {
					t.Errorf("%s: %q has several lines", name, b)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, %s: %q, want %q", name, mode, got, want)
			}
			err := g.Compatible(r)
			if (err != nil) != (len(want) > 0) || err != nil && !errors.Is(err, contractoutbox.ErrIncompatible) {
				t.Errorf("%s, %s: %v", name, mode, err)
			}
			if mode == contractoutbox.Full && err != nil && !strings.Contains(err.Error(), tc.fullLine) {
				t.Errorf("%s: %v\nwant %s", name, err, tc.fullLine)
			}
			allowed := newGenerator(t, tc.now, contractoutbox.Config{Compatibility: mode, Allow: want})
			if err := allowed.Compatible(r); err != nil {
				t.Errorf("%s, %s: it was allowed: %v", name, mode, err)
			}
		}
	}
}

// A catalog is compatible with its own documents, because the file keeps everything that a schema
// has.
func TestBaselineIsCompatibleWithItself(t *testing.T) {
	g := newGenerator(t, catalog(), config)
	noError(t, g.Compatible(release(t, catalog())))
}

func TestReadBaseline(t *testing.T) {
	dir := t.TempDir()
	if _, err := contractoutbox.ReadBaseline(dir); !errors.Is(err, contractoutbox.ErrNotReleased) {
		t.Error(err)
	}
	for name, content := range map[string]string{
		"no JSON": "{", "of somebody else": `{"asyncapi":"3.0.0","components":{"messages":{"a":{"payload":{}}}}}`,
		"empty": `{}`, "a bad payload": `{"components":{"messages":{"a":{"payload":7}}}}`,
	} {
		must(t, os.WriteFile(filepath.Join(dir, "asyncapi.json"), []byte(content), 0o600))
		if _, err := contractoutbox.ReadBaseline(dir); !errors.Is(err, contractoutbox.ErrBaseline) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A tag has the documents of its time, whatever the folder has now.
func TestGitBaseline(t *testing.T) {
	root := t.TempDir()
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(root))
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{
			"-C", root, "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false",
			"-c", "tag.gpgsign=false",
		}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
	dir := filepath.Join(root, "docs", "events")
	must(t, os.MkdirAll(dir, 0o755))
	if _, err := contractoutbox.GitBaseline(t.Context(), dir, ""); err == nil ||
		errors.Is(err, contractoutbox.ErrNotReleased) {
		t.Errorf("no repository: %v", err)
	}
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "first")
	if _, err := contractoutbox.GitBaseline(t.Context(), dir, ""); !errors.Is(err, contractoutbox.ErrNotReleased) ||
		!strings.Contains(err.Error(), "git fetch --tags") {
		t.Errorf("no tag: %v", err)
	}
	git("tag", "v0.1.0")
	if _, err := contractoutbox.GitBaseline(t.Context(), dir, ""); !errors.Is(err, contractoutbox.ErrNotReleased) ||
		!strings.Contains(err.Error(), "v0.1.0") {
		t.Errorf("a tag without documents: %v", err)
	}
	for tag, c := range map[string]*contract.Catalog{"v1.0.0": one(nil, basic{"o", 1})} {
		must(t, newGenerator(t, c, contractoutbox.Config{}).Write(dir))
		git("add", ".")
		git("commit", "-q", "-m", tag)
		git("tag", tag)
	}
	g := newGenerator(t, one(nil, otherName{"o", 1}), contractoutbox.Config{})
	must(t, g.Write(dir))
	git("commit", "-q", "-a", "-m", "next")
	for _, tag := range []string{"", "v1.0.0", "HEAD~1"} {
		r, err := contractoutbox.GitBaseline(t.Context(), dir, tag)
		must(t, err)
		if n := len(g.Breaks(r)); n != 2 {
			t.Errorf("tag %q: %d breaks", tag, n)
		}
	}
	r, err := contractoutbox.GitBaseline(t.Context(), dir, "HEAD")
	if err != nil || g.Compatible(r) != nil {
		t.Errorf("%v, %v", g.Compatible(r), err)
	}
	for _, tag := range []string{"v9.9.9", "--output=x"} {
		if _, err := contractoutbox.GitBaseline(t.Context(), dir, tag); err == nil ||
			errors.Is(err, contractoutbox.ErrNotReleased) || !strings.Contains(err.Error(), "no revision") {
			t.Errorf("tag %q: %v", tag, err)
		}
	}
}
