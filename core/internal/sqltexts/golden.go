package sqltexts

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Format returns the texts, sorted by name, as a golden file has them.
func Format(texts map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		fmt.Fprintf(&b, "-- %s\n%s\n\n", name, texts[name])
	}
	return b.String()
}

// Golden compares got with the file at path, or writes the file if update is true. A brace that is
// left in got is a word that was not expanded, and an error.
func Golden(path, got string, update bool) error {
	if m := regexp.MustCompile(`[{}]`).FindString(got); m != "" {
		return fmt.Errorf("%s: %s is left in the text", path, m)
	}
	if update {
		return os.WriteFile(path, []byte(got), 0o644)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if got != string(want) {
		return fmt.Errorf("%s differs: look at the difference after `go test . -run Texts -update`", path)
	}
	return nil
}
