package ui_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	. "github.com/chromedp/chromedp"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// chromium returns the path of a browser. Without it the test fails.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{
		os.Getenv("OUTBOX_TEST_CHROMIUM"), "chromium-headless-shell", "chromium",
		"google-chrome",
	} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("Chromium is missing: run `make chromium` (apt-get install chromium-headless-shell), or set " +
		"OUTBOX_TEST_CHROMIUM")
	return ""
}

// browser is a window of a browser, and a person in front of it.
type browser struct {
	*testing.T
	ctx context.Context

	mu   sync.Mutex
	said []string // what the console of the browser has said
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	ctx, stop := NewExecAllocator(t.Context(), append(DefaultExecAllocatorOptions[:],
		ExecPath(chromium(t)), NoSandbox, DisableGPU, Flag("disable-quic", true), UserDataDir(t.TempDir()))...)
	t.Cleanup(stop)
	ctx, stop = NewContext(ctx)
	t.Cleanup(stop)
	ctx, stop = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(stop)
	b := &browser{T: t, ctx: ctx}
	fixture.NoError(t, Do(ctx, Navigate("about:blank")))
	fixture.NoError(t, Listen(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *cdplog.EventEntryAdded:
			b.said = append(b.said, e.Entry.Text)
		case *runtime.EventExceptionThrown:
			b.said = append(b.said, e.ExceptionDetails.Text)
		}
	}))
	return b
}

// do does what a person does.
func (b *browser) do(steps ...Action[Void]) {
	b.Helper()
	if err := Do(b.ctx, steps...); err != nil {
		text, _ := Run(b.ctx, Text("body"))
		b.Fatalf("%v\n%s", err, text)
	}
}

// says requires that the page says something, and waits for it.
func (b *browser) says(texts ...string) {
	b.Helper()
	for _, text := range texts {
		fixture.AwaitIn(b, 20*time.Second, "the page says "+text,
			func() bool { return strings.Contains(b.read(), text) })
	}
}

// becomes reads the page again until it says something.
func (b *browser) becomes(text string) {
	b.Helper()
	fixture.AwaitIn(b, 20*time.Second, "the page says "+text, func() bool {
		return strings.Contains(b.read(), text) || Do(b.ctx, Reload()) == nil && strings.Contains(b.read(), text)
	})
}

// read is what people read of the page.
func (b *browser) read() string {
	text, _ := Run(b.ctx, Text("body"))
	return strings.Join(strings.Fields(text), " ")
}

// press clicks on what has that text, and waits for it.
func (b *browser) press(text string) {
	b.Helper()
	b.await("there is a "+text, `(() => { const all = [...document.querySelectorAll('a, button, summary')].filter(e =>
		e.textContent.trim() === `+quote(text)+` && e.getClientRects().length > 0 && !e.disabled);
		if (all.length) all[0].click(); return all.length > 0; })()`)
}

// write writes into the field with that id, and waits for it.
func (b *browser) write(id, text string) {
	b.Helper()
	b.await("there is a field "+id, `(() => { const f = document.getElementById(`+quote(id)+`);
		if (f) f.value = `+quote(text)+`; return !!f; })()`)
}

// selectFirst ticks the first row of a list.
func (b *browser) selectFirst() {
	b.Helper()
	b.await("there is a row",
		`(() => { const f = document.querySelector('td.tick input'); if (f) f.checked = true; return !!f; })()`)
}

// await repeats a script until it returns true. A page that is just leaving is asked again.
func (b *browser) await(what, script string) {
	b.Helper()
	fixture.AwaitIn(b, 20*time.Second, what, func() bool {
		done, err := Run(b.ctx, Evaluate[bool](script))
		return err == nil && done
	})
}

func quote(s string) string {
	r := strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`)
	return "'" + r.Replace(s) + "'"
}

// phone makes the window as narrow as a phone.
func (b *browser) phone() { b.do(EmulateViewport(390, 844)) }

// dark asks pages for their dark colours.
func (b *browser) dark() {
	b.Helper()
	_, err := Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}},
	})
	fixture.NoError(b, err)
}

// quiet requires that the browser has refused and missed nothing.
func (b *browser) quiet() {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range b.said {
		b.Errorf("the browser says: %s", text)
	}
}
