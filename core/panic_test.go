package core_test

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core"
)

func explodes(v any) { panic(v) }

func TestPanicError(t *testing.T) {
	caught := func(fn func()) (e *core.PanicError) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { e = core.NewPanicError(recover()) }()
			fn()
		}()
		<-done
		return e
	}
	for _, c := range []struct {
		value any
		text  string
	}{
		{"boom", "panic: boom"},
		{io.EOF, "panic: EOF"},
		{42, "panic: 42"},
		{"a\xff\x00b", "panic: a??b"},
		{"postgres://ada:secret@db/x", "panic: postgres://***@db/x"},
	} {
		e := caught(func() { explodes(c.value) })
		if e.Error() != c.text || e.Value != c.value || !strings.Contains(string(e.Stack), "core_test.explodes") {
			t.Errorf("got %q, value %v, stack:\n%s", e, e.Value, e.Stack)
		}
		if errors.Is(e, io.EOF) {
			t.Error("the value of a panic was taken for a returned error")
		}
	}
	if e := caught(func() { explodes(nil) }); e.Value == nil ||
		!strings.HasPrefix(e.Error(), "panic: panic called with nil") {
		t.Errorf("panic(nil): %q", e)
	}
	long := caught(func() { explodes(strings.Repeat("ä", 1<<20)) }).Error()
	if len(long) > 2<<10 || !utf8.ValidString(long) || !strings.HasPrefix(long, "panic: ää") {
		t.Errorf("%d bytes, %.40q", len(long), long)
	}
	if e := caught(runtime.Goexit); e.Value != nil || !strings.Contains(e.Error(), "runtime.Goexit") ||
		strings.Contains(e.Error(), "panic") {
		t.Errorf("runtime.Goexit: %q, %v", e, e.Value)
	}
}
