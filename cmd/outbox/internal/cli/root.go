package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/ormoutbox/ormoutbox/core"
)

// Environment is what a command has from its process.
type Environment struct {
	In       io.Reader
	Out, Err io.Writer // data, and everything else
	Getenv   func(string) string
	Now      func() time.Time // nil: time.Now
	// Terminal: a person is at In, and can be asked.
	Terminal bool
	// Colors: Out is a terminal.
	Colors bool
	// Progress: Err is a terminal, which shows a progress bar.
	Progress bool
}

// System returns the environment of this process.
func System() Environment {
	tty := func(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
	return Environment{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv,
		Terminal: tty(os.Stdin) && tty(os.Stderr), Colors: tty(os.Stdout), Progress: tty(os.Stderr),
	}
}

// Run executes the command that args name, and returns the exit code. It writes errors to env.Err.
func Run(ctx context.Context, args []string, env Environment) int {
	a := &app{Environment: env, answers: bufio.NewReader(env.In)}
	root := a.root()
	root.SetArgs(args)
	c, err := root.ExecuteContextC(ctx)
	code := codeOf(err)
	if err != nil {
		if code == ExitFailed && !a.began { // flags and arguments are read before the command begins
			code = ExitUsage
		}
		text := withoutPackages(strings.TrimSpace(withFlags(c, err)))
		if code == ExitUsage {
			if m := noArgument.FindStringSubmatch(text); m != nil && !c.HasSubCommands() { // cobra calls it a command
				text = fmt.Sprintf("%s takes no arguments, and got %s: what it selects is in its flags", m[2], m[1])
			}
			if strings.Contains(text, " arg(s), ") { // cobra counts them, and does not name the missing one
				text += ": " + strings.TrimSuffix(c.UseLine(), " [flags]")
			}
		}
		a.note("outbox: %s", lines(text))
		if code == ExitUsage && !strings.Contains(text, "--help") {
			a.note("outbox: see %s --help", c.CommandPath())
		}
	}
	return code
}

// noArgument matches cobra's error for an argument of a command that takes none.
var noArgument = regexp.MustCompile(`^unknown command ("[^"]*") for "([^"]*)"$`)

// packages are names of packages before an error, or before the error in it.
var packages = regexp.MustCompile(`(^|: )(?:(?:outbox|ops|sqloutbox|config): )+`)

// withoutPackages removes names of packages, which do not help a person.
func withoutPackages(text string) string { return packages.ReplaceAllString(text, "$1") }

// withFlags is the text of err with the flags of a command in place of the fields that they set.
func withFlags(c *cobra.Command, err error) string {
	text := err.Error()
	for _, e := range fieldErrors(err) {
		text = strings.Replace(text, e.Error(), e.Text(func(field string) string { return flagOf(c, field) }), 1)
	}
	return text
}

// fieldErrors returns the errors of fields that err wraps.
func fieldErrors(err error) (all []*core.FieldError) {
	switch e := err.(type) { //nolint:errorlint // it goes through all that are wrapped
	case *core.FieldError:
		return []*core.FieldError{e}
	case interface{ Unwrap() error }:
		return fieldErrors(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			all = append(all, fieldErrors(one)...)
		}
	}
	return all
}

// flagOf is the flag that sets a field: --per-second for PerSecond. Without one it is the field.
func flagOf(c *cobra.Command, field string) string {
	var name strings.Builder
	for i, r := range field[strings.LastIndexByte(field, '.')+1:] {
		if unicode.IsUpper(r) && i > 0 {
			name.WriteByte('-')
		}
		name.WriteRune(unicode.ToLower(r))
	}
	if c.Flag(name.String()) == nil {
		return field
	}
	return "--" + name.String()
}

// app is one run of the program.
type app struct {
	Environment
	answers *bufio.Reader
	began   bool // the arguments were right

	databaseURL, schema, prefix string
	effectsPrefix, keysPrefix   string
	json                        bool
	timeout                     time.Duration
}

// NewRoot returns the commands for a caller that only reads their texts.
func NewRoot() *cobra.Command {
	nothing := func(string) string { return "" }
	return (&app{Environment: Environment{Getenv: nothing, Out: io.Discard, Err: io.Discard}}).root()
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "outbox",
		Short: "Operate an ormoutbox: see, explain, repair, migrate, relay",
		Long: `outbox operates the tables of ormoutbox. --database-url, or the variable DATABASE_URL, is the
address of the database:

  postgres://user:password@host:5432/database?sslmode=require
  mysql://user:password@host:3306/database, or mariadb://...
  user:password@tcp(host:3306)/database
  sqlite:path/to/file.db

A command that changes something prints what would change, and asks. Without a terminal it needs
--yes. outbox audit lists actors and reasons. --dry-run changes nothing, and has the exit code that
the change would have.

Results go to the standard output, everything else to the standard error. Durations are 90s, 2h30m
or 7d. A plus after a number means that counting stopped there. Control characters are escaped, except
with --json. NO_COLOR turns colors off.

With --json a command prints one object, or tail one for each event. relay logs JSON:

  - A list has the name of its content, such as events: [] if empty, null if unknown.
  - "more": there may be more rows. --after with "next" prints the next page; without "next", raise
    --limit or give a filter. "capped": the number beside it may be higher.
  - Times are in RFC 3339. New versions may add fields.

Exit codes:
  0  done
  1  failed, or not found
  2  wrong use of a command or flag
  3  unhealthy: the command worked, and found something wrong
  4  partly done: fewer rows changed than you named or selected, and these stay changed
  5  refused: nobody confirmed it`,
		SilenceUsage: true, SilenceErrors: true,
		SuggestionsMinimumDistance: 2,
		PersistentPreRunE: func(c *cobra.Command, args []string) error {
			a.began = true
			return plausible(c, args)
		},
	}
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	flags := root.PersistentFlags()
	flags.StringVarP(&a.databaseURL, "database-url", "d", "", "the database (default: $DATABASE_URL)")
	flags.StringVar(&a.schema, "schema", "", "schema of the tables; on MySQL a database")
	flags.StringVar(&a.prefix, "prefix", "", `prefix of the tables (default "outbox_")`)
	flags.BoolVar(&a.json, "json", false, "print JSON")
	flags.DurationVar(&a.timeout, "timeout", time.Minute, "time limit; 0: none")
	root.AddCommand(
		a.statusCommand(),
		a.historyCommand(),
		a.listCommand(),
		a.showCommand(),
		a.explainCommand(),
		a.groupsCommand(),
		a.tailCommand(),
		a.auditCommand(),
		a.keysCommand(),
		a.inboxCommand(),
		a.effectsCommand(),
		a.idempotencyCommand(),
		a.deadCommand(),
		a.redriveCommand(),
		a.editCommand(),
		a.discardCommand(),
		a.eraseCommand(),
		a.replayCommand(),
		a.pauseCommand(),
		a.resumeCommand(),
		a.pausesCommand(),
		a.rateCommand(),
		a.ratesCommand(),
		a.windowCommand(),
		a.plansCommand(),
		a.doctorCommand(),
		a.uiCommand(),
		a.migrateCommand(),
		a.relayCommand(),
		a.probeCommand(),
		a.versionCommand(),
	)
	for _, c := range root.Commands() {
		c.SuggestionsMinimumDistance = root.SuggestionsMinimumDistance
	}
	return root
}

// plausible refuses what can only be a mistake. An argument or the value of a flag is empty if a
// variable of a shell is not set. The text of a note may be empty.
func plausible(c *cobra.Command, args []string) (err error) {
	for i, arg := range args {
		if arg == "" && (c.Name() != "note" || i == 0) {
			return usage("argument %d is empty: %s", i+1, strings.TrimSuffix(c.UseLine(), " [flags]"))
		}
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		list, _ := f.Value.(pflag.SliceValue)
		empty := f.Value.Type() == "string" && f.Value.String() == "" ||
			list != nil && slices.Contains(list.GetSlice(), "")
		if empty { // --topic "$TOPIC" would select all
			err = usage("--%s: it is empty, as if a variable were not set; leave the flag out for its default", f.Name)
		}
		if d, perr := time.ParseDuration(f.Value.String()); perr == nil && f.Value.Type() == "duration" && d < 0 {
			err = usage("--%s %s: it is negative", f.Name, d)
		}
		if most := f.Annotations[atMost]; most != nil {
			n, _ := strconv.Atoi(f.Value.String())
			if limit, _ := strconv.Atoi(most[0]); n < 1 || n > limit {
				err = usage("--%s %d: it is 1 to %d", f.Name, n, limit)
			}
		}
	})
	return err
}

// atMost is the annotation of a flag with its largest value.
const atMost = "at_most"

// limitFlag registers --limit for a command that lists at most so many things.
func limitFlag(c *cobra.Command, to *int, limit, most int) {
	c.Flags().IntVar(to, "limit", limit, fmt.Sprintf("rows, up to %d", most))
	_ = c.Flags().SetAnnotation("limit", atMost, []string{strconv.Itoa(most)})
}

// complete sets the values of a flag that a shell offers.
func complete(c *cobra.Command, flag string, values ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// group makes a command that only has commands below it. Without this cobra prints the help for a
// mistyped one, and succeeds.
func group(c *cobra.Command, below ...*cobra.Command) *cobra.Command {
	c.AddCommand(below...)
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		hint := ""
		like := c.SuggestionsFor(args[0])
		if _, err := core.ParseRowID(args[0]); err == nil && c.Name() == "replay" {
			like = []string{"plan " + args[0]}
		}
		if len(like) > 0 {
			hint = "\n\nDid you mean this?\n\t" + strings.Join(like, "\n\t")
		}
		return usage("unknown command %q for %q%s", args[0], c.CommandPath(), hint)
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	return c
}

// limited is the context of a command with --timeout.
func (a *app) limited(c *cobra.Command) (context.Context, context.CancelFunc) {
	if a.timeout <= 0 {
		return context.WithCancel(c.Context())
	}
	return context.WithTimeout(c.Context(), a.timeout)
}

// now is the time of this machine.
func (a *app) now() time.Time {
	if a.Now != nil {
		return a.Now()
	}
	return time.Now()
}
