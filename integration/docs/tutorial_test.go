package docs

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
)

// Files of the tutorial, by step.
const (
	step1, step2   = "quickstart/main.go", "tutorial/2-order/main.go"
	shop3, shop4   = "tutorial/3-consumer/shop/main.go", "tutorial/4-kill/shop/main.go"
	bills3, bills4 = "tutorial/3-consumer/billing/main.go", "tutorial/4-kill/billing/main.go"
)

// The code on the first page is a part of the tutorial's first program.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	first := goBlocks(t, "README.md")[0].code
	if lines := strings.Count(first, "\n"); lines > 15 {
		t.Errorf("the idea takes %d lines", lines)
	}
	wantPart(t, "README.md", first, step1)
}

// The tutorial shows the program of its first step, and of each further step the difference.
func TestTutorialShowsItsSteps(t *testing.T) {
	t.Parallel()
	const page = "docs/tutorial.md"
	blocks := goBlocks(t, page)
	if blocks[0].code != exampleCode(t, step1) {
		t.Errorf("%s does not begin with %s", page, step1)
	}
	for _, b := range blocks[1:] {
		wantPart(t, page, b.code, bills3)
	}
	steps := [][2]string{{step1, step2}, {step2, shop3}, {shop3, shop4}, {bills3, bills4}}
	diffs := regexp.MustCompile("(?s)```diff\n(.*?)```\n").FindAllStringSubmatch(read(t, page), -1)
	if len(diffs) != len(steps) {
		t.Fatalf("%s shows %d differences", page, len(diffs))
	}
	for i, step := range steps {
		if patched(t, exampleCode(t, step[0]), diffs[i][1]) != exampleCode(t, step[1]) {
			t.Errorf("%s does not show the whole difference between %s and %s", page, step[0], step[1])
		}
	}
}

// patched applies hunks, whose first lines are @@ without numbers.
func patched(t *testing.T, code, diff string) string {
	t.Helper()
	for hunk := range strings.SplitSeq(diff, "@@\n") {
		var before, after string
		for line := range strings.Lines(hunk) {
			if line[0] != '+' {
				before += line[1:]
			}
			if line[0] != '-' {
				after += line[1:]
			}
		}
		if strings.Count("\n"+code, "\n"+before) != 1 {
			t.Errorf("a hunk has its place in the code %d times:\n%s", strings.Count("\n"+code, "\n"+before), hunk)
		}
		code = strings.Replace("\n"+code, "\n"+before, "\n"+after, 1)[1:]
	}
	return code
}

// wantPart requires each paragraph of a block to be in a program, at any indentation.
func wantPart(t *testing.T, page, block, program string) {
	t.Helper()
	indent := regexp.MustCompile(`(?m)^\t+`)
	all := indent.ReplaceAllString(exampleCode(t, program), "")
	for part := range strings.SplitSeq(strings.TrimSpace(indent.ReplaceAllString(block, "")), "\n\n") {
		if !strings.Contains(all, "\n"+part+"\n") {
			t.Errorf("%s shows code that is not in %s:\n%s", page, program, part)
		}
	}
}

// exampleCode returns a file of the examples from its package clause on.
func exampleCode(t *testing.T, file string) string {
	t.Helper()
	_, code, _ := strings.Cut(read(t, "examples/"+file), "\npackage main\n")
	return "package main\n" + code
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	fixture.NoError(t, err)
	return string(text)
}

// The steps without a server print what the pages say, one after the other in one folder.
func TestTutorialStepsWithoutServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, step := range []struct{ page, command, program string }{
		{"README.md", "go run ./examples/quickstart", "quickstart"},
		{"docs/tutorial.md", "go run ./examples/tutorial/2-order", "2-order"},
	} {
		_, after, _ := strings.Cut(read(t, step.page), "$ "+step.command+"\n")
		want, _, found := strings.Cut(after, "```")
		run := exec.CommandContext(t.Context(), example(t, step.program))
		run.Dir = dir
		out, err := run.CombinedOutput()
		if got := fixture.WithoutSlowSQL(string(out)); err != nil || !found || got != want {
			t.Errorf("%v: %s prints\n%s\n%s says\n%s", err, step.command, got, step.page, want)
		}
	}
}

// In the third step a consumer in another process gets the order's events in their order.
func TestTutorialConsumer(t *testing.T) {
	t.Parallel()
	dir := tutorialPrograms(t, shop3, bills3)
	billing, shop := launch(t, dir, "billing"), launch(t, dir, "shop")
	fixture.Await(t, "both events are consumed", func() bool {
		return printed(billing) == "order.placed 1\norder.paid 1\n"
	})
	shop.stop(t)
	billing.stop(t)
	if got := printed(shop); got != "stored order 1\n" {
		t.Errorf("the shop prints %q", got)
	}
}

// In the fourth step both processes are killed. The command line and the page show what they left
// behind. After a new start each paid order has one paid invoice.
func TestTutorialKill(t *testing.T) {
	t.Parallel()
	dir := tutorialPrograms(t, shop4, bills4)
	goTool(t, filepath.Join(root, "cmd", "outbox"), "build", "-buildvcs=false", "-ldflags=-s -w", "-o", dir+"/", ".")
	open := 0
	for open == 0 { // until a kill leaves an event behind
		billing, shop := launch(t, dir, "billing"), launch(t, dir, "shop")
		fixture.Await(t, "an order is paid on both sides", func() bool {
			return strings.Contains(printed(billing), "order.paid") && strings.Contains(printed(shop), "stored order")
		})
		kill(t, shop)
		kill(t, billing)
		_, err := fmt.Sscanf(outbox(t, dir, "status"), "sqlite shop.db\npending %d,", &open)
		fixture.NoError(t, err)
	}
	killed := time.Now().UTC().Format(time.RFC3339Nano)
	unpublished := func() bool {
		return strings.Contains(outbox(t, dir, "list", "--status", "new", "--until", killed), "order.p")
	}
	if !unpublished() {
		t.Errorf("status counts %d pending events, and list has none", open)
	}
	wantPage(t, dir)

	billing, shop := launch(t, dir, "billing"), launch(t, dir, "shop")
	fixture.AwaitIn(t, 2*time.Minute, "the events of the dead relay are published", func() bool {
		return !unpublished()
	})
	shop.stop(t)
	if status := outbox(t, dir, "status"); !strings.Contains(status, "\npending 0,") {
		t.Errorf("the shop leaves events behind, although it ends by itself:\n%s", status)
	}
	orders := 0
	_, err := fmt.Sscanf(lastLine(shop), "the book has %d paid orders", &orders)
	fixture.NoError(t, err)
	book, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "billing.db")+"?_pragma=busy_timeout(5000)")
	fixture.NoError(t, err)
	defer book.Close()
	fixture.AwaitIn(t, 2*time.Minute, "every paid order has a paid invoice", func() bool {
		return fixture.Count(t, book, "SELECT count(DISTINCT order_id) FROM invoices WHERE paid") == int64(orders)
	})
	billing.stop(t)
	if want := fmt.Sprintf("the book has %d paid invoices of %[1]d orders", orders); lastLine(billing) != want {
		t.Errorf("billing prints %q, want %q", lastLine(billing), want)
	}
}

func kill(t *testing.T, p *program) {
	t.Helper()
	fixture.NoError(t, p.cmd.Process.Kill())
	_ = p.cmd.Wait() // says that it was killed
	if s, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
		t.Fatalf("%s is not killed: %v\n%s", p.cmd.Path, p.cmd.ProcessState, p.output())
	}
}

// outbox runs the command line on the database of the shop.
func outbox(t *testing.T, dir string, args ...string) string {
	t.Helper()
	args = append([]string{"-d", "sqlite:shop.db"}, args...)
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "outbox"), args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("outbox %s: %v\n%s", args, err, out)
	}
	return string(out)
}

// wantPage opens the operators' page of the shop.
func wantPage(t *testing.T, dir string) {
	t.Helper()
	ui := launch(t, dir, "outbox", "-d", "sqlite:shop.db", "ui", "--listen", "127.0.0.1:0")
	var address string
	fixture.Await(t, "the page has an address", func() bool {
		address, _, _ = strings.Cut(ui.output(), "\n")
		return strings.Contains(ui.output(), "\n")
	})
	jar, err := cookiejar.New(nil)
	fixture.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	fixture.NoError(t, err)
	answer, err := (&http.Client{Jar: jar}).Do(request)
	fixture.NoError(t, err)
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	fixture.NoError(t, err)
	if answer.StatusCode != http.StatusOK || !strings.Contains(string(page), "shop.db") {
		t.Errorf("%s\n%s", answer.Status, page)
	}
	ui.stop(t)
}

// tutorialPrograms builds programs of the tutorial with the test's broker and a topic of their own,
// and returns their folder.
func tutorialPrograms(t *testing.T, files ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	topic := topics.Rabbit(t)
	overlay, packages := map[string]string{}, []string{}
	for i, file := range files {
		code := read(t, "examples/"+file)
		for from, to := range map[string]string{
			`"amqp://guest:guest@127.0.0.1:27672/"`:       quoted(t, topics.RabbitURI(t)),
			`AggregateType: "order"`:                      `AggregateType: "` + topic + `"`,
			`AddConsumerHandler("invoice", "order", subs`: `AddConsumerHandler("invoice", "` + topic + `", subs`,
		} {
			code = strings.ReplaceAll(code, from, to)
		}
		if strings.Contains(code, `"order"`) {
			t.Fatalf("%s would use the topic of a reader", file)
		}
		where, err := filepath.Abs(filepath.Join(root, "examples", file))
		fixture.NoError(t, err)
		overlay[where] = filepath.Join(dir, fmt.Sprintf("%d.txt", i))
		fixture.NoError(t, os.WriteFile(overlay[where], []byte(code), 0o600))
		packages = append(packages, "./"+filepath.Dir(file))
	}
	replace, err := json.Marshal(map[string]any{"Replace": overlay})
	fixture.NoError(t, err)
	list := filepath.Join(dir, "overlay.json")
	fixture.NoError(t, os.WriteFile(list, replace, 0o600))
	goTool(t, filepath.Join(root, "examples"), append([]string{
		"build", "-buildvcs=false", "-ldflags=-s -w", "-overlay", list, "-o", dir + "/",
	}, packages...)...)
	return dir
}

// launch starts a program that is in a folder, and works there.
func launch(t *testing.T, dir, name string, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.CommandContext(t.Context(), filepath.Join(dir, name), args...)}
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = p, os.Stderr
	fixture.NoError(t, p.cmd.Start())
	return p
}

// printed is what a program says, without GORM's remarks on a slow machine.
func printed(p *program) string { return fixture.WithoutSlowSQL(p.output()) }

func lastLine(p *program) string {
	lines := strings.Split(strings.TrimSpace(printed(p)), "\n")
	return lines[len(lines)-1]
}
