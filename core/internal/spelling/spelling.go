// Package spelling finds names that may be misspellings of each other.
package spelling

import (
	"slices"
	"strings"
	"unicode"
)

// Near returns the first of the names from which word differs by one letter, by two letters that
// changed places, or by upper and lower case. It returns "" if there is none. Names that differ by
// a digit, such as v1 and v2, are meant to. Names of fewer than four letters are not compared.
func Near(word string, names []string) string {
	for _, name := range names {
		if name != word && near([]rune(strings.ToLower(word)), []rune(strings.ToLower(name))) {
			return name
		}
	}
	return ""
}

func near(a, b []rune) bool {
	if min(len(a), len(b)) < 4 {
		return false
	}
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	if slices.ContainsFunc(a, unicode.IsDigit) || slices.ContainsFunc(b, unicode.IsDigit) {
		return false
	}
	swapped := len(a) == 2 && len(b) == 2 && a[0] == b[1] && a[1] == b[0]
	return len(a) <= 1 && len(b) <= 1 || swapped
}
