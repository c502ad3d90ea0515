package outboxsql

import (
	"strconv"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

const (
	attemptNode = 100 // bytes of the name of the node in a line
	attemptCode = 64
	attemptText = 300 // bytes of the text of the error in a line

	timeDigits = 16 // of a time in microseconds since 1970, from 2001 until 2286
)

// AttemptLine returns the end of a line of the column failures. The statement writes before it the
// time in microseconds, a blank, and the number of the attempt.
func AttemptLine(path core.Path, node, code, text string) string {
	fields := []string{
		"",
		string(path),
		errtext.Clip(node, attemptNode),
		errtext.Clip(code, attemptCode),
		errtext.Clip(text, attemptText),
	}
	for i, f := range fields {
		fields[i] = strings.Map(blank, f)
	}
	return strings.Join(fields, "\t") + "\n"
}

// blank replaces what ends a field.
func blank(r rune) rune {
	if r == '\t' || r == '\n' {
		return ' '
	}
	return r
}

// Attempts reads the last lines of the column failures. A line that cannot be read is left out, as is
// the first one if its beginning was cut off.
func Attempts(column string) (all []ops.Attempt) {
	for line := range strings.Lines(column) {
		if a, ok := readAttempt(strings.TrimSuffix(line, "\n")); ok {
			all = append(all, a)
		}
	}
	return all[max(0, len(all)-ops.MaxAttempts):]
}

func readAttempt(line string) (a ops.Attempt, ok bool) {
	fields := strings.SplitN(line, "\t", 5)
	at, number, _ := strings.Cut(fields[0], " ")
	us, err := strconv.ParseInt(at, 10, 64)
	if len(fields) < 5 || len(at) != timeDigits || err != nil {
		return a, false
	}
	if a.Attempt, err = strconv.Atoi(number); err != nil {
		return a, false
	}
	a.At = time.UnixMicro(us).UTC()
	a.Path, a.Node, a.Code, a.Error = core.Path(fields[1]), fields[2], fields[3], fields[4]
	return a, true
}
