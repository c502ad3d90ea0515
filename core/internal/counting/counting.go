// Package counting bounds how long a count of rows takes.
package counting

import "time"

// Most is how many rows of a kind a count looks at.
const Most = 100_000

// A count looks at few rows first. Each row can be a page that the server reads from its disk, so
// the time for Most rows lies between milliseconds and minutes. If it would be more than longest,
// the count of few rows has to do: metrics wait for 2 s, and people for no longer.
const (
	few     = Most / 10
	longest = time.Second
)

// Rows calls count with a limit of rows to look at. more reports whether rows were left out.
func Rows[T any](count func(limit int) (counted T, more bool, err error)) (counted T, more bool, err error) {
	start := time.Now()
	counted, more, err = count(few)
	if err != nil || !more || time.Since(start) > longest*few/Most {
		return counted, more, err
	}
	return count(Most)
}
