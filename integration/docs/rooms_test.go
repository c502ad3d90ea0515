package docs

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the drawing into docs/design/rooms.md")

// The drawing of the packages has an arrow for every import of the code, and no other.
func TestRooms(t *testing.T) {
	t.Parallel()
	page := filepath.Join(root, "docs", "design", "rooms.md")
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(old), "```mermaid\n")
	_, after, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("docs/design/rooms.md has no drawing")
	}
	now := before + "```mermaid\n" + drawing(t) + "```" + after
	if now == string(old) {
		return
	}
	if !*update {
		t.Fatal("docs/design/rooms.md is not what the code imports: go test ./integration/docs -run Rooms -update")
	}
	if err := os.WriteFile(page, []byte(now), 0o644); err != nil {
		t.Fatal(err)
	}
}

var (
	inDrawing = regexp.MustCompile(`\[([^\]]+)\] --> \w+\[([^\]]+)\]`)
	codeSpan  = regexp.MustCompile("`([^`]+)`")
)

// Each room of the drawing has a row in the table, which names every room that it imports, and no
// other.
func TestEveryRoomIsDescribed(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs", "design", "rooms.md"))
	if err != nil {
		t.Fatal(err)
	}
	told := map[string][]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		var imports []string
		for _, m := range codeSpan.FindAllStringSubmatch(cells[3], -1) {
			imports = append(imports, m[1])
		}
		slices.Sort(imports)
		for _, m := range codeSpan.FindAllStringSubmatch(cells[1], -1) {
			told[m[1]] = imports
		}
	}
	drawn := map[string][]string{"core": nil}
	for _, m := range inDrawing.FindAllStringSubmatch(string(page), -1) {
		drawn[m[1]] = append(drawn[m[1]], m[2])
	}
	for room, imports := range drawn {
		slices.Sort(imports)
		row, there := told[room]
		if !there {
			t.Errorf("the table of docs/design/rooms.md has no row for %s", room)
		} else if !slices.Equal(row, imports) {
			t.Errorf("the row of %s says that it imports %q, and it imports %q", room, row, imports)
		}
	}
	if len(drawn) < 20 {
		t.Errorf("the drawing has %d rooms", len(drawn))
	}
}

func drawing(t *testing.T) string {
	t.Helper()
	const module = "github.com/ormoutbox/ormoutbox/"
	arrows := map[string]bool{}
	for _, path := range slices.Sorted(maps.Values(packages)) {
		room, ours := strings.CutPrefix(path, module)
		if !ours || strings.HasPrefix(room, "integration/") {
			continue
		}
		out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{join .Imports "\n"}}`, path).Output()
		if err != nil {
			t.Fatal(err)
		}
		for to := range strings.FieldsSeq(string(out)) {
			if to, ours := strings.CutPrefix(to, module); ours && !strings.Contains(to, "internal/") {
				arrows[fmt.Sprintf("  %s --> %s\n", node(room), node(to))] = true
			}
		}
	}
	var b bytes.Buffer
	b.WriteString("graph TD\n")
	for _, arrow := range slices.Sorted(maps.Keys(arrows)) {
		b.WriteString(arrow)
	}
	return b.String()
}

// node names a room by its path and shows its last part.
func node(room string) string {
	return fmt.Sprintf("%s[%s]", strings.NewReplacer("/", "_", "-", "_").Replace(room), room)
}
