package once_test

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// chargeCard is a function of the work. The stack of a panic must name it.
func chargeCard() { panic("no card") }

// A panic of the work goes on with its value and its stack. The Observer gets both. It gets
// runtime.Goexit as an error of its own.
func TestPanicsAreTold(t *testing.T) {
	var told error
	w := newWorld(t, once.Config{Observer: &once.Observer{Ran: func(i once.RunInfo) { told = i.Err }}})
	lease := newRunner(t, once.Config{
		Store:    outboxtest.NewOnceStore(),
		Observer: &once.Observer{Ran: func(i once.RunInfo) { told = i.Err }},
	})
	for form, run := range map[string]func(fn func()){
		"lease": func(fn func()) {
			_, _, _ = lease.Do(t.Context(), key, noPrint,
				func(context.Context) (once.Result, error) { fn(); return once.Result{}, nil })
		},
		"tx": func(fn func()) {
			_, _, _ = w.RunInTx(t.Context(), w.Transactor, key, noPrint,
				func(context.Context, core.Tx) (once.Result, error) { fn(); return once.Result{}, nil })
		},
	} {
		outside := func(fn func()) (v any, stack string) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { v, stack = recover(), string(debug.Stack()) }()
				run(fn)
				t.Errorf("%s: it returned", form)
			}()
			<-done
			return v, stack
		}
		if v, stack := outside(chargeCard); v != "no card" || !strings.Contains(stack, "once_test.chargeCard") {
			t.Errorf("%s: %v went on, with the stack\n%s", form, v, stack)
		}
		if p, ok := errors.AsType[*core.PanicError](told); !ok || p.Value != "no card" ||
			!strings.Contains(string(p.Stack), "once_test.chargeCard") ||
			!strings.HasSuffix(told.Error(), ": panic: no card") {
			t.Errorf("%s: told %v", form, told)
		}
		if v, _ := outside(runtime.Goexit); v != nil {
			t.Errorf("%s: runtime.Goexit went on as %v", form, v)
		}
		if p, ok := errors.AsType[*core.PanicError](told); !ok || p.Value != nil ||
			!strings.Contains(told.Error(), "runtime.Goexit") {
			t.Errorf("%s: runtime.Goexit was told as %v", form, told)
		}
	}
}
