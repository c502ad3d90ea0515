package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ormoutbox/ormoutbox/core"
)

// A wrong command or flag ends with exit code 2, and a hint.
func TestWrongUse(t *testing.T) {
	t.Parallel()
	w := &world{T: t}
	for _, c := range []struct {
		args []string
		hint string
	}{
		{[]string{"migrat"}, "Did you mean this?\n\tmigrate"},
		{[]string{"migrate", "upp"}, "Did you mean this?\n\tup"},
		{[]string{"migrate", "up", "--jsn"}, "unknown flag: --jsn"},
		{[]string{"migrate", "up", "now"}, `outbox migrate up takes no arguments, and got "now"`},
		{[]string{"explain"}, "received 0: outbox explain ID\noutbox: see outbox explain --help"},
		{[]string{"plans", "list", "--limit", "1001"}, "it is 1 to 1000\noutbox: see outbox plans list --help"},
		{[]string{"migrate", "up"}, "DATABASE_URL"},
		{[]string{"migrate", "up", "-d", "oracle://h/d"}, "postgres://"},
		{[]string{"migrate", "up", "-d", "mysql://h"}, "no database"},
		{[]string{"migrate", "up", "-d", "sqlite:"}, "no file"},
	} {
		r := w.run(c.args...)
		if r.code != ExitUsage || !strings.Contains(r.err, c.hint) || r.out != "" {
			t.Errorf("outbox %s: exit code %d\n%s%s", strings.Join(c.args, " "), r.code, r.out, r.err)
		}
	}
}

// Errors name no packages.
func TestErrorsForPeople(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"outbox: ops: no such event: 7":                        "no such event: 7",
		"outbox a: outbox: config: x":                          "outbox a: x",
		"1 of 4 are worked off: ops: the plan":                 "1 of 4 are worked off: the plan",
		"--config: outbox 1: config: a":                        "--config: outbox 1: a",
		"sqloutbox: schema drift: outbox: columns are missing": "schema drift: columns are missing",
		"the outbox: x":                                        "the outbox: x",
	} {
		equal(t, withoutPackages(text), want, "%q", text)
	}
}

// Errors name the flags of the command in place of the fields of Go. What a person wrote stays.
func TestFlagsForFields(t *testing.T) {
	t.Parallel()
	c, _, err := NewRoot().Find([]string{"rate"})
	must(t, err)
	wrong := func(format string, args ...any) error {
		return &core.FieldError{Err: core.ErrInvalidRequest, Format: format, Args: args}
	}
	for want, err := range map[string]error{
		"outbox: invalid request: --per-second -1 is not 0": wrong("{PerSecond} %v is not 0", -1),
		"x: outbox: invalid request: --reason is empty (--yes)": fmt.Errorf("x: %w",
			wrong("{R.Reason} is empty ({Yes})")),
		"topic Off{Off} and {Off}, Unlimited": &core.FieldError{
			Format: "topic %s and %s, {Unlimited}", Args: []any{"Off{Off}", "{Off}"},
		},
		"--off\n--yes and --off": errors.Join(&core.FieldError{Format: "{Off}"}, usage("%w",
			&core.FieldError{Format: "{Yes} and {Off}"})),
		"PerSecond of others": errors.New("PerSecond of others"),
	} {
		equal(t, withFlags(c, err), want, "%q", err)
	}
}

// A password is never printed.
func TestPasswordIsNotPrinted(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := l.Addr().String()
	_ = l.Close() // nobody listens there
	w := &world{T: t}
	for _, url := range []string{
		"postgres://me:hunter2@" + address + "/shop", "postgres://me:hunter2@" + address + "/shop?sslmode=wrong",
		"mysql://me:hunter2@" + address + "/shop", "mariadb://me:hunter2@" + address + "/shop?timeout=x",
		"me:hunter2@tcp(" + address + ")/shop", "me:hunter2@tcp(" + address + "/shop", "mysql://me:hunter2@%zz/shop",
		"oracle://me:hunter2@" + address + "/shop", "postgres://me:hunter2@" + address + ":x/shop",
	} {
		r := w.run("migrate", "status", "-d", url)
		if r.code == ExitOK || strings.Contains(r.out+r.err, "hunter2") {
			t.Errorf("%s: exit code %d\n%s%s", url, r.code, r.out, r.err)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	w := &world{T: t}
	if out := w.ok("version"); !regexp.MustCompile(`^outbox \S+, tables of version \d+, go1\S+\n$`).MatchString(out) {
		t.Errorf("version printed %q", out)
	}
	var v versionInfo
	if w.json(&v, "version"); v.Tables < 1 || v.Version == "" {
		t.Errorf("version --json: %+v", v)
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	w := &world{T: t}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := w.ok("completion", shell); !strings.Contains(out, "outbox") {
			t.Errorf("completion %s printed %q", shell, out)
		}
	}
	if out := w.ok("__complete", "migrate", "get", "--format", "go"); !strings.Contains(out, "golang-migrate") {
		t.Errorf("formats are not completed: %s", out)
	}
}

// Colors are for terminals without NO_COLOR.
func TestColors(t *testing.T) {
	t.Parallel()
	for env, want := range map[string]bool{"": true, "NO_COLOR": false} {
		a := &app{Environment: Environment{Colors: true, Getenv: func(name string) string {
			if name == env {
				return "1"
			}
			return ""
		}}}
		equal(t, a.paint(red, "x") != "x", want, "with %q: colors", env)
	}
}

// docs/cli.md has the texts of the commands.
func TestDocs(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "..", "..", "..", "docs", "cli.md")
	got := reference(NewRoot())
	if *update {
		must(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if string(want) != got {
		t.Error("docs/cli.md has other texts than the commands: go test ./internal/cli -run Docs -update")
	}
}

// Every command prints JSON on request, and says what it is for.
func TestEveryCommandHasJSON(t *testing.T) {
	t.Parallel()
	for _, c := range leaves(NewRoot()) {
		if c.Flag("json") == nil || c.Short == "" {
			t.Errorf("%s: no --json or no text", c.CommandPath())
		}
	}
}

// Every command that changes something has a dry run, and asks first. Those that change no event
// and no destination, or can be taken back before they do, do not ask.
func TestEveryMutationCanBeTried(t *testing.T) {
	t.Parallel()
	silent := map[string]bool{
		"outbox redrive plan": true, "outbox discard plan": true, "outbox replay plan": true, // apply asks
		"outbox groups note": true, "outbox groups mute": true, "outbox groups unmute": true,
		"outbox migrate up": true,
	}
	var mutations int
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, below := range c.Commands() {
			walk(below)
		}
		has := func(name string) bool { return c.Flag(name) != nil }
		if !has("reason") && !has("yes") && !has("actor") && !silent[c.CommandPath()] || c.Name() == "audit" ||
			c.Name() == "ui" { // the page asks
			return
		}
		mutations++
		if !has("dry-run") || !has("json") || has("yes") == silent[c.CommandPath()] {
			t.Errorf("%s: --dry-run %t, --json %t, --yes %t", c.CommandPath(), has("dry-run"), has("json"), has("yes"))
		}
	}
	walk(NewRoot())
	if mutations < 25 {
		t.Errorf("%d commands change something", mutations)
	}
}

// leaves are the commands that do something.
func leaves(c *cobra.Command) (all []*cobra.Command) {
	if !c.HasSubCommands() {
		return []*cobra.Command{c}
	}
	if c.Example != "" && c.HasParent() { // it does something by itself too
		all = append(all, c)
	}
	for _, below := range c.Commands() {
		all = append(all, leaves(below)...)
	}
	return all
}

// reference is the text of docs/cli.md.
func reference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(`# Command line

The program ` + "`outbox`" + ` is module ` + "`cmd/outbox`" + `. It needs the address of the database, and none
of your code.

` + "```" + `
go build -o outbox ./cmd/outbox   # in a clone
export DATABASE_URL=postgres://user:password@host/database
./outbox migrate up
` + "```" + `

A test writes this page from the commands.

## outbox

`)
	fence := func(text string) { b.WriteString("```\n" + strings.Trim(text, "\n") + "\n```\n") }
	fence(root.Long)
	b.WriteString("\nFlags of every command:\n\n")
	fence(usages(root.PersistentFlags()))
	shared := sharedFlags(root)
	b.WriteString("\nFlags of several commands, which name them after \"Also\". A command that changes something\n" +
		"has `--actor`, `--reason`, `--dry-run` and, if it asks, `--yes`. The filter is the flags that begin\n" +
		"with \"only\". `--help` has the types of flags, and examples.\n\n")
	fence(usages(shared))
	first := map[string]string{}
	for _, c := range leaves(root) {
		b.WriteString("\n## " + c.CommandPath() + "\n\n")
		text := section(c, shared)
		like := strings.ReplaceAll(text, c.Parent().Name(), "")
		if first[like] != "" {
			b.WriteString("As `" + first[like] + "`.\n")
			continue
		}
		first[like] = c.CommandPath()
		fence(text)
	}
	return b.String()
}

// section is the text of a command: what it does, its arguments and its flags.
func section(c *cobra.Command, shared *pflag.FlagSet) string {
	text := cmp.Or(c.Long, c.Short)
	usage := strings.TrimSuffix(c.UseLine(), " [flags]")
	if usage != c.CommandPath() {
		text += "\n\n  " + usage
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	var also []string
	filtered := c.Flag("error-code") != nil
	for _, f := range ownFlags(c) {
		if common := shared.Lookup(f.Name); common == nil || !sameFlag(common, f) {
			flags.AddFlag(f)
		} else if !slices.Contains(flagsOfChanges, f.Name) && (!filtered || !strings.HasPrefix(f.Usage, "only")) {
			also = append(also, "--"+f.Name)
		}
	}
	if flags.HasFlags() {
		text += "\n\n" + strings.TrimRight(usages(flags), "\n")
	}
	if filtered {
		also = append(also, "the filter")
	}
	if also != nil {
		text += "\n\nAlso: " + strings.Join(also, ", ")
	}
	return text
}

// usages is what --help says of flags, without their types.
func usages(flags *pflag.FlagSet) string {
	return typeOfFlag.ReplaceAllStringFunc(flags.FlagUsagesWrapped(90), func(text string) string {
		name, kind, _ := strings.Cut(text, "--")
		flag := kind[:strings.IndexAny(kind, " [")]
		return name + "--" + flag + strings.Repeat(" ", len(kind)-len(flag))
	})
}

var typeOfFlag = regexp.MustCompile(`(?m)^ +(-\w, )?--[a-z-]+( \w+|\[=true\|false\])`)

// flagsOfChanges are the flags of commands that change something.
var flagsOfChanges = []string{"actor", "reason", "dry-run", "yes"}

// sharedFlags are the flags that several commands have with the same text.
func sharedFlags(root *cobra.Command) *pflag.FlagSet {
	shared := pflag.NewFlagSet("", pflag.ContinueOnError)
	var seen []*pflag.Flag
	for _, c := range leaves(root) {
		for _, f := range ownFlags(c) {
			again := slices.ContainsFunc(seen, func(s *pflag.Flag) bool { return sameFlag(s, f) })
			if seen = append(seen, f); again && shared.Lookup(f.Name) == nil {
				shared.AddFlag(f)
			}
		}
	}
	return shared
}

func sameFlag(a, b *pflag.Flag) bool {
	return a.Name == b.Name && a.Usage == b.Usage && a.DefValue == b.DefValue
}

// ownFlags are the flags of a command that not every command has.
func ownFlags(c *cobra.Command) (all []*pflag.Flag) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if c.Root().PersistentFlags().Lookup(f.Name) == nil && f.Name != "help" {
			all = append(all, f)
		}
	})
	return all
}
