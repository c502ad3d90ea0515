package cli

import (
	"fmt"
	"reflect"
	"regexp"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// This file is the door to the terminal of a person. What commands print is made of texts of others:
// errors, keys, topics, headers, reasons, names. None of them may move the cursor, hide a part of a
// line, or begin a line of its own, so all of them go through shown. JSON is for programs, and has
// every text as it is.

// note prints a remark that is not data.
func (a *app) note(format string, args ...any) {
	show(args)
	_, _ = fmt.Fprintf(a.Err, format+"\n", args...)
}

// sayf prints data for people.
func (a *app) sayf(format string, args ...any) {
	show(args)
	_, _ = fmt.Fprintf(a.Out, format, args...)
}

// lines is a text of others that may have lines and tabs.
type lines string

var withinLines = regexp.MustCompile(`[^\n\t]+`)

// painted is a text that may be shown, with its colors.
type painted string

// paint colors a text on a terminal, unless NO_COLOR is set. An empty color is none.
func (a *app) paint(color, text string) painted {
	text = ops.Printable(text)
	if !a.Colors || color == "" || text == "" || a.Getenv("NO_COLOR") != "" || a.Getenv("TERM") == "dumb" {
		return painted(text)
	}
	return painted(color + text + plain)
}

func show(args []any) {
	for i, arg := range args {
		args[i] = shown(arg)
	}
}

// shown returns an argument as a terminal may show it. Numbers stay as they are.
func shown(arg any) any {
	switch arg := arg.(type) {
	case painted:
		return string(arg)
	case lines:
		return withinLines.ReplaceAllStringFunc(string(arg), ops.Printable)
	case string:
		return ops.Printable(arg)
	case error:
		return ops.Printable(arg.Error())
	}
	switch k := reflect.ValueOf(arg).Kind(); {
	case k >= reflect.Bool && k <= reflect.Complex128:
		return arg
	default:
		return ops.Printable(fmt.Sprint(arg))
	}
}
